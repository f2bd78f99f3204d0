"""A server with tokens and grants, started as users start it, in a process of its own, and watched
from outside.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.spark.processes import java_of

from sparkport.auth.token_file import create_token

ROOT = Path(__file__).parents[2]
SCHEMA = "load"
WRITERS, READER = ("ada", "bob", "cyd"), "eve"
"""The first may do everything in the schema of the load, each in its own tables and rows; the last
may read.
"""

_GRANTS = """
tokens_file = "tokens"

[[grants]]
to = "group:writers"
on = "*"
may = ["read", "write", "alter", "spark_sql"]

[[grants]]
to = "eve"
on = "*.load"
may = "read"
"""

UNFORESEEN = re.compile(
    r"Traceback \(most recent call last\)|unexpected error|internal error|Fatal Python "
    r"error|Segfault"
)

_RECORD = re.compile(r"^[\d-]{10} [\d:,]{12} ", re.MULTILINE)
_OF_PY4J = "INFO root: Exception while sending command"
"""What py4j says of a job that is still under way when Spark is stopped at the end."""


@dataclass
class Ground:
    """The folder of one load: tokens, grants, and the warehouse where there is one. Servers come
    and go on it.
    """

    folder: Path
    lake: bool
    flags: Sequence[str] = ()
    catalogs: Sequence[str] = ()
    """What to serve in place of the demo."""
    environment: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    logs: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "load.toml").write_text(_GRANTS)
        for name in (*WRITERS, READER):
            groups = ["writers"] if name in WRITERS else []
            self.tokens[name], _ = create_token(self.folder / "tokens", name, groups)

    @property
    def catalog(self) -> str:
        return "lake" if self.lake else "demo"

    @contextmanager
    def serving(self) -> Iterator[Served]:
        """A server that is killed at the end, unless it has ended by then."""
        log = self.folder / f"server-{len(self.logs) + 1}.log"
        self.logs.append(log)
        what = ["--warehouse", "lake"] if self.lake else self.catalogs or ["--demo"]
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [
                    *(
                        str(Path(sys.executable).with_name("sparkport")),
                        "serve",
                        "--config",
                        "load.toml",
                        *what,
                    ),
                    *("--listen", "127.0.0.1:0", *self.flags),
                ],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        try:
            assert process.stdout is not None
            location = re.search(r"grpc://[\d.]+:\d+", process.stdout.readline())
            assert location is not None, f"the server did not start: {log.read_text()[-2000:]}"
            yield Served(process, location[0], log, java_of(process.pid))
        finally:
            process.kill()
            process.communicate(timeout=60)

    def unforeseen(self) -> list[str]:
        """What the servers have logged that nobody foresaw, with what follows it."""
        found = []
        for log in self.logs:
            for record in _RECORD.split(log.read_text(errors="replace")):
                if UNFORESEEN.search(record) and not record.startswith(_OF_PY4J):
                    found.append(f"{log.name}: {record[:3000]}")
        return found


@dataclass
class Served:
    """A running server."""

    process: subprocess.Popen[str]
    location: str
    log: Path
    java: list[int]

    def kill(self) -> None:
        """As `kill -9` does it."""
        self.process.kill()
        self.process.wait(60)

    def terminate(self, seconds: float) -> int:
        """SIGTERM, and the code it ends with. Raises: subprocess.TimeoutExpired."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@dataclass(frozen=True)
class Sample:
    """What a server uses at one moment; its Java's part is by itself."""

    server_mb: float
    java_mb: float
    threads: int
    java_threads: int


class Watch:
    """Looks at a server every second. `first` and `last` are what it used after it was warm, and in
    the end.
    """

    def __init__(self, served: Served, seconds: float = 1.0) -> None:
        self._served = served
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.samples: list[Sample] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(10)

    def _look(self) -> None:
        while not self._stopped.wait(self._seconds):
            with suppress(FileNotFoundError, ProcessLookupError, KeyError):
                self.samples.append(sample(self._served))

    def between(self, start: float, end: float) -> Sample:
        """Medians of a part of the time, from 0 to 1; the fewest threads of Java, which come and go
        in waves.
        """
        part = self.samples[int(start * len(self.samples)) : max(1, int(end * len(self.samples)))]
        return Sample(
            statistics.median(each.server_mb for each in part),
            statistics.median(each.java_mb for each in part),
            int(statistics.median(each.threads for each in part)),
            min(each.java_threads for each in part),
        )


def sample(served: Served) -> Sample:
    server, threads = _of(served.process.pid)
    java, java_threads = _of(served.java[0]) if served.java else (0.0, 0)
    return Sample(server, java, threads, java_threads)


def _of(pid: int) -> tuple[float, int]:
    lines = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if ":" in line
    )
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["Threads"])
