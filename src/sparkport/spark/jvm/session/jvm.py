"""The JVM that PySpark uses for an embedded lake: its start, its output, its end."""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os
import re
import shlex
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkport.errors import PreconditionFailed
from sparkport.spark.jvm.session.jars import spark_home

if TYPE_CHECKING:
    from pyspark import SparkConf

__all__ = ["Jvm"]

_log = logging.getLogger("sparkport.spark.jvm.session.jvm")

_NOTES = ("WARNING: Using incubator modules", "NOTE: Picked up ", "Picked up ")
"""What Java prints about options of Spark's own launcher or of the user's environment."""
_EXCEPTION = re.compile(r'^Exception in thread "main" [\w.$]+: |^Error: ')
_FIRST_LINES = 20
_SECONDS_TO_END = 10.0
_SECONDS_BETWEEN_LOOKS = 0.05
_ADDRESS = struct.Struct(">ii")  # the port, and the length of the secret that follows


class Jvm:
    """A JVM with PySpark's gateway.

    It ends with this process, also when that is killed: its standard input closes.

    PySpark would start it with a `preexec_fn`, for which Python copies the process with `fork`. The
    copy of a process that has used gRPC may crash before it becomes a JVM. So the JVM is started
    here, and PySpark only connects to it.
    """

    def __init__(self, conf: SparkConf, environment: Mapping[str, str]) -> None:
        """Raises: PreconditionFailed when the JVM does not start."""
        self._said: list[str] = []
        self._logs = False
        """Whether its output is logged as warnings.

        Before it is up, the output is part of the error; when it stops, it is about unfinished
        work.
        """
        with tempfile.TemporaryDirectory(prefix="sparkport-jvm-") as folder:
            address = Path(folder) / "address"
            self._process = subprocess.Popen(  # noqa: S603 - Spark's own program
                _command(conf),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,  # our own belongs to the program that has started Spark
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "SPARK_HOME": str(spark_home()),
                    **environment,
                    "SPARK_CONNECT_MODE": "0",
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
                },
                start_new_session=True,  # so that Ctrl-C reaches only us, and we stop it in order
            )
            self._reader = threading.Thread(
                target=self._listen, name="sparkport-jvm-output", daemon=True
            )
            self._reader.start()
            try:
                self.gateway = _gateway(*self._address(address))
            except BaseException:
                self._end(0)
                raise
        self.gateway.proc = self._process  # as PySpark does
        self._logs = True
        atexit.register(self.stop)  # else it would outlive us by a second as a zombie

    def _address(self, file: Path) -> tuple[int, str]:
        """The port and the secret of the gateway, once the JVM has written them (all at once)."""
        while not file.exists():
            if self._process.poll() is not None:
                self._reader.join(_SECONDS_TO_END)
                raise PreconditionFailed(f"Spark does not start: {self.failure}")
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        port, length = _ADDRESS.unpack_from(said := file.read_bytes())
        return port, said[_ADDRESS.size : _ADDRESS.size + length].decode()

    @property
    def failure(self) -> str:
        """The first line of its output that explains why it did not start."""
        lines = [line for line in self._said if line and not line.startswith(("\t", *_NOTES))]
        return _EXCEPTION.sub("", lines[0]) if lines else "Java says nothing"

    def stop_logging(self) -> None:
        """Log no more warnings: a Spark that stops reports every task and connection it ends."""
        self._logs = False

    def stop(self) -> None:
        """Stop the JVM, and wait until it has ended."""
        from pyspark import SparkContext

        atexit.unregister(self.stop)
        self.stop_logging()
        self.gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = (
            None  # the next SparkContext starts a JVM of its own
        )
        self._end(_SECONDS_TO_END)

    def _end(self, seconds: float) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_SECONDS_TO_END)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with io.TextIOWrapper(self._process.stdout, encoding="utf-8", errors="replace") as output:
            for line in output:
                text = line.rstrip()
                if len(self._said) < _FIRST_LINES:
                    self._said.append(text)
                note = not self._logs or not text or text.startswith(_NOTES)
                _log.log(logging.DEBUG if note else logging.WARNING, "%s", text)


def _command(conf: SparkConf) -> list[str]:
    settings = [word for name, value in conf.getAll() for word in ("--conf", f"{name}={value}")]
    wanted = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(spark_home() / "bin" / "spark-submit"), *settings, *wanted]


def _gateway(port: int, secret: str) -> Any:
    """PySpark's end of the gateway. PySpark learns of a running JVM only from the environment."""
    from pyspark.java_gateway import launch_gateway

    launch: Any = launch_gateway  # PySpark's internals have no types
    with _environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
        return launch()


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while PySpark reads them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
