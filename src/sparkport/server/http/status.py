"""The content of the status page as JSON: administrators see everything, others their own calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import sparkport
from sparkport.lines import one_line
from sparkport.server.observability import Watching
from sparkport.service.activity import Sample, Work
from sparkport.service.calls import Call
from sparkport.service.service import Service

__all__ = ["Cared", "Viewer", "status"]

_log = logging.getLogger(__name__)

_BIN_SECONDS = 15
_MOST_SHOWN = 200
_MOST_ENDED = 50
_MOST_OF_CARE = 50


@runtime_checkable
class Cared(Protocol):
    """A catalog that takes care of its tables in the background, and tells of it."""

    def care_runs(self) -> Sequence[Mapping[str, str | float | None]]:
        """The last steps, the youngest first. Quick, and thread-safe.

        Each has the texts `table`, `step`, `why`, `done` and `problem`, and the numbers `began`
        (seconds since 1970), `seconds` (None while it runs) and `progress` (between 0 and 1).
        """
        ...


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person who looks at the page."""

    call: Call
    signed_in: bool
    sees_everything: bool

    def sees(self, work: Work) -> bool:
        """Whether this viewer may see the call."""
        own = self.call.principal is not None and work.principal == self.call.principal
        return self.sees_everything or own


def status(service: Service, watching: Watching, viewer: Viewer, location: str) -> dict[str, Any]:
    """Return all that the page shows. Raises: Unauthenticated."""
    activity = watching.activity
    running = [work for work in activity.running() if viewer.sees(work)]
    ended = [work for work in activity.ended() if viewer.sees(work)]
    failures = [failure for failure in activity.failures() if viewer.sees(failure.work)]
    return {
        "version": sparkport.__version__,
        "location": location,
        "time": time.time(),
        "uptime": time.time() - watching.started_at,
        "draining": watching.draining,
        "rules_outdated": service.rules_outdated if viewer.sees_everything else None,
        "viewer": {
            "name": None if viewer.call.principal is None else one_line(viewer.call.principal),
            "signed_in": viewer.signed_in,
            "sees_everything": viewer.sees_everything,
        },
        "catalogs": [registered.name for registered in service.catalogs(viewer.call)],
        "running_count": len(running),
        "running": [_work(work) for work in running[:_MOST_SHOWN]],
        "ended": [_work(work) for work in ended[:_MOST_ENDED]],
        "errors": [
            {
                "time": failure.time,
                "code": failure.code,
                "message": one_line(failure.message),
                **_work(failure.work),
            }
            for failure in failures
        ],
        "throughput": _throughput(activity.samples()) if viewer.sees_everything else None,
        "care": _care(service) if viewer.sees_everything else None,
    }


def _care(service: Service) -> list[dict[str, Any]] | None:
    """The last steps of care of all catalogs; None where no catalog tells of any."""
    found: list[dict[str, Any]] = []
    is_told = False
    for registered in service.registry.all():
        if not isinstance(registered.catalog, Cared):
            continue
        is_told = True
        try:
            runs = registered.catalog.care_runs()
            found += [_step(registered.name, run) for run in runs[:_MOST_OF_CARE]]
        except Exception:  # noqa: BLE001 - a catalog in trouble must not hide the rest of the page
            _log.warning("catalog %s does not tell of its care", registered.name, exc_info=True)
    found.sort(key=lambda step: (step["seconds"] is None, step["began"] or 0.0), reverse=True)
    return found[:_MOST_OF_CARE] if is_told else None


def _step(catalog: str, run: Mapping[str, str | float | None]) -> dict[str, Any]:
    texts = {name: one_line(str(run[name])) for name in ("step", "why", "done", "problem")}
    given = {name: run[name] for name in ("began", "seconds", "progress")}
    numbers = {name: None if each is None else float(each) for name, each in given.items()}
    return {"object": one_line(f"{catalog}.{run['table']}"), **texts, **numbers}


def _work(work: Work) -> dict[str, Any]:
    """Describe a call. Clients choose the names in it, which must not garble the page."""
    shown = {
        "id": work.id,
        "rpc": work.rpc,
        "operation": work.operation,
        "object": work.object,
        "principal": work.principal,
        "trace_id": work.trace_id,
        "session": work.session,
        "started": work.started_at,
        "seconds": work.seconds,
        "rows_out": work.rows_out,
        "bytes_out": work.bytes_out,
        "rows_in": work.rows_in,
        "bytes_in": work.bytes_in,
        "messages_out": work.messages_out,
        "messages_in": work.messages_in,
        "progress": work.progress.fraction,
        "route": work.progress.route,
        "idle": work.idle_seconds if work.ended is None else 0.0,
        "code": None if work.ended is None else work.code,
        "cut_off": work.cut_off,
    }
    return {
        name: one_line(value) if isinstance(value, str) else value for name, value in shown.items()
    }


def _throughput(samples: list[Sample]) -> dict[str, Any]:
    """Return sums of a quarter of a minute each, so that an hour is a few kilobytes."""
    bins: dict[int, list[int]] = {}
    for sample in samples:
        sums = bins.setdefault(int(sample.time // _BIN_SECONDS), [0, 0, 0, 0])
        totals = sample.totals
        for index, figure in enumerate(
            (totals.rows_out, totals.bytes_out, totals.rows_in, totals.bytes_in)
        ):
            sums[index] += figure
    return {
        "seconds": _BIN_SECONDS,
        "columns": ["time", "rows_out", "bytes_out", "rows_in", "bytes_in"],
        "points": [[start * _BIN_SECONDS, *sums] for start, sums in sorted(bins.items())],
    }
