"""What the care of a lake's tables has done: for the log, the status page and the metrics."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sparkport.errors import Cancelled, SparkportError
from sparkport.spark.iceberg.identifiers import Identifier

__all__ = ["CareLog", "CareRun", "shown_runs"]

_log = logging.getLogger(__name__)

_MOST_RUNS = 200
_MOST_TABLES = 10_000


@dataclass(frozen=True, slots=True)
class CareRun:
    """One step of care of a table."""

    table: Identifier
    step: str
    """`join files`, `forget versions`, `remove files`, `record versions`, `join manifests`."""
    why: str
    """What made it necessary, in a few words."""
    began: float
    """Seconds since 1970."""
    seconds: float | None = None
    """How long it took; None while it runs."""
    done: str = ""
    """What it has done, in a few words."""
    files_removed: int = 0
    bytes_saved: int = 0
    versions_forgotten: int = 0
    problem: str = ""
    """Why it has failed. It is tried again later."""
    progress: float = 0.0
    """Between 0 and 1."""


@dataclass(slots=True)
class RunningStep:
    """A step that is under way. Its thread sets what it has done."""

    run: CareRun
    outcome: dict[str, object] = field(default_factory=dict)

    def tell(
        self,
        done: str,
        *,
        files_removed: int = 0,
        bytes_saved: int = 0,
        versions_forgotten: int = 0,
    ) -> None:
        """Say what was done. A step that says nothing is not reported."""
        self.outcome = {
            "done": done,
            "files_removed": files_removed,
            "bytes_saved": bytes_saved,
            "versions_forgotten": versions_forgotten,
        }

    def report(self, progress: float) -> None:
        """Say how far it is, between 0 and 1."""
        self.run = replace(self.run, progress=min(max(progress, 0.0), 1.0))


class CareLog:
    """The last steps of care, the one that runs, and sums over all of them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: deque[CareRun] = deque(maxlen=_MOST_RUNS)
        self._last: dict[Identifier, CareRun] = {}
        self._running: RunningStep | None = None
        self._totals: Counter[str] = Counter()

    @contextmanager
    def step(self, table: Identifier, step: str, why: str) -> Iterator[RunningStep]:
        """Report a step while it runs, and what became of it. A failure is reported, not raised.

        Raises: Cancelled when the lake is closed.
        """
        running = RunningStep(CareRun(table, step, why, time.time()))
        with self._lock:
            self._running = running
        began = time.monotonic()
        problem = ""
        try:
            yield running
        except Cancelled:
            raise
        except SparkportError as error:
            problem = error.message
            _log.warning("care of table %s: %s: %s", table, step, problem)
        except Exception:  # noqa: BLE001 - it is tried again later, and nothing depends on it
            problem = "an unexpected error, which the log tells"
            _log.warning("care of table %s: %s failed", table, step, exc_info=True)
        finally:
            with self._lock:
                self._running = None
        if running.outcome or problem:
            seconds = time.monotonic() - began
            self._add(replace(running.run, seconds=seconds, problem=problem, **running.outcome))  # type: ignore[arg-type]  # as `tell` has them

    def _add(self, run: CareRun) -> None:
        if run.done:
            _log.info(
                "care of table %s: %s in %.1f s: %s (%s)",
                *(run.table, run.step, run.seconds, run.done, run.why),
            )
        with self._lock:
            self._runs.append(run)
            self._last[run.table] = run
            while len(self._last) > _MOST_TABLES:
                del self._last[next(iter(self._last))]
            self._totals["care_steps"] += not run.problem
            self._totals["care_failures"] += bool(run.problem)
            self._totals["care_files_removed"] += run.files_removed
            self._totals["care_bytes_saved"] += run.bytes_saved
            self._totals["care_versions_forgotten"] += run.versions_forgotten

    def runs(self) -> Sequence[CareRun]:
        """The last steps, the youngest first; the one that runs comes before them."""
        with self._lock:
            running = [] if self._running is None else [self._running.run]
            return [*running, *reversed(self._runs)]

    def last(self, table: Identifier) -> CareRun | None:
        """The last step of a table, if it is not long ago."""
        with self._lock:
            return self._last.get(table)

    def totals(self) -> Mapping[str, float]:
        """Sums since the start, for metrics."""
        names = ("steps", "failures", "files_removed", "bytes_saved", "versions_forgotten")
        with self._lock:
            totals = {f"care_{name}": float(self._totals[f"care_{name}"]) for name in names}
            return {**totals, "care_running": float(self._running is not None)}


def shown_runs(log: CareLog) -> list[Mapping[str, str | float | None]]:
    """The last steps as the status page asks for them: the youngest first.

    `seconds` is None of the step that runs.
    """
    return [
        {
            "table": str(run.table),
            "step": run.step,
            "why": run.why,
            "began": run.began,
            "seconds": run.seconds,
            "done": run.done,
            "problem": run.problem,
            "progress": run.progress,
        }
        for run in log.runs()
    ]
