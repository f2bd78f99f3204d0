"""A standalone Spark cluster of separate processes on loopback, and a server that uses it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from sparkport.spark.jvm.session.jars import spark_home

__all__ = ["Cluster", "ServerProcess"]

_T = TypeVar("_T")

_SECONDS = 200.0
"""How long a busy machine may take to start some JVMs; an idle one takes ten seconds."""
_HOST = "127.0.0.1"
_ENVIRONMENT = {
    "SPARK_LOCAL_IP": _HOST,
    "SPARK_DAEMON_MEMORY": "256m",
    # they do little; starting them is what costs
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Cluster:
    """One master and two workers with a core each. Stopping it kills all that it has started."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for logs and for the workers' files."""
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[_Worker] = []
        try:
            self.url = self._start_master()
            self.complete()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def complete(self) -> None:
        """Have two workers, which may still be starting."""
        while len(self._workers) < 2:
            self._workers.append(self._start_worker())

    def wait_for_executors(self, work: Callable[[], object]) -> None:
        """Wait until the server uses each worker; `work` makes it run jobs."""
        _wait(
            lambda: all(worker.has_executor for worker in self._workers),
            "an executor on each worker",
        )
        _wait(
            lambda: work() and all(worker.has_worked for worker in self._workers),
            "work for each worker",
        )

    def kill_worker(self) -> None:
        """Kill one worker and its executor, as if their machine had been switched off."""
        _kill(self._workers.pop().process)

    def kill_workers(self) -> None:
        """Kill all workers, for good."""
        while self._workers:
            self.kill_worker()

    def stop(self) -> None:
        for process in reversed(self._processes):
            _kill(process)

    def _start_master(self) -> str:
        log = self._folder / "master.log"
        self._run(
            log,
            "org.apache.spark.deploy.master.Master",
            "--host",
            _HOST,
            "--port",
            "0",
            "--webui-port",
            "0",
        )
        return _wait(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", _text(log)), "the master"
        )[1]

    def _start_worker(self) -> _Worker:
        place = self._folder / f"worker{len(self._processes)}"
        place.mkdir()
        process = self._run(
            place / "worker.log",
            "org.apache.spark.deploy.worker.Worker",
            *(
                "--host",
                _HOST,
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(place),
            ),
            self.url,
        )
        return _Worker(process, place)

    def _run(self, log: Path, *command: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **_ENVIRONMENT, "SPARK_HOME": str(spark_home())}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [spark_home() / "bin" / "spark-class", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # an executor is in the process group of its worker, and is killed with it
                start_new_session=True,
            )
        self._processes.append(process)
        return process


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    place: Path

    @property
    def has_executor(self) -> bool:
        return self._says("Successfully registered with driver")

    @property
    def has_worked(self) -> bool:
        return self._says("Finished task")

    def _says(self, words: str) -> bool:
        return any(words in _text(log) for log in self.place.glob("app-*/*/stderr"))


class ServerProcess:
    """`sparkport serve` in its own process: this process has a SparkContext already."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sparkport", "serve", "--listen", f"{_HOST}:0", *arguments],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.location = _wait(
                lambda: re.search(r"LOCATION '(grpc://[\d.:]+)'", self._said()), "the server"
            )[1]
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop it as an administrator does, and its JVM in any case."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        _kill(self._process)

    def _said(self) -> str:
        text = _text(self._log)
        assert self._process.poll() is None, f"the server has ended: {text}"
        return text


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _wait(found: Callable[[], _T | None], what: str) -> _T:
    deadline = time.monotonic() + _SECONDS
    while not (answer := found()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return answer
