"""The JVM that PySpark starts for an embedded lake: what it says, and its end."""

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
"""What Java says about options that Spark's own launcher or the user's environment gave it."""
_EXCEPTION = re.compile(r'^Exception in thread "main" [\w.$]+: |^Error: ')
_FIRST_LINES = 20
_SECONDS_TO_END = 10.0
_SECONDS_BETWEEN_LOOKS = 0.05
_ADDRESS = struct.Struct(">ii")  # the port, and how long the secret is, which follows


class Jvm:
    """A JVM with PySpark's gateway. It ends with this process, also when that is killed: its
    standard input closes.

    PySpark would start it with a `preexec_fn`, for which Python copies the process with `fork`. The
    copy of a process that has used gRPC may die of it before it becomes a JVM, so it is started
    here, and PySpark only connects to it.
    """

    def __init__(self, conf: SparkConf, environment: Mapping[str, str]) -> None:
        """Raises: PreconditionFailed when it does not come up."""
        self._said: list[str] = []
        self._heard = False
        """Whether what it says goes to the log: until it is up, that is part of the error; once it
        stops, it tells of what was under way."""
        with tempfile.TemporaryDirectory(prefix="sparkport-jvm-") as folder:
            address = Path(folder) / "address"
            self._process = subprocess.Popen(  # noqa: S603 - Spark's own program
                _command(conf),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,  # ours belongs to the program that has started Spark
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "SPARK_HOME": str(spark_home()),
                    **environment,
                    "SPARK_CONNECT_MODE": "0",
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
                },
                start_new_session=True,  # so that Ctrl-C reaches us only, and we end it in order
            )
            self._listener = threading.Thread(
                target=self._listen, name="sparkport-jvm-output", daemon=True
            )
            self._listener.start()
            try:
                self.gateway = _gateway(*self._address(address))
            except BaseException:
                self._end(0)
                raise
        self.gateway.proc = self._process  # as PySpark does
        self._heard = True
        atexit.register(
            self.stop
        )  # it would outlive us by a second, and nobody would collect its exit code

    def _address(self, file: Path) -> tuple[int, str]:
        """The port of the gateway and its secret, as soon as it has written them, which it does at
        once.
        """
        while not file.exists():
            if self._process.poll() is not None:
                self._listener.join(_SECONDS_TO_END)
                raise PreconditionFailed(f"Spark does not start: {self.complaint}")
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        port, length = _ADDRESS.unpack_from(said := file.read_bytes())
        return port, said[_ADDRESS.size : _ADDRESS.size + length].decode()

    @property
    def complaint(self) -> str:
        """What it said first that explains why it has not come up."""
        lines = [line for line in self._said if line and not line.startswith(("\t", *_NOTES))]
        return _EXCEPTION.sub("", lines[0]) if lines else "Java says nothing"

    def stop_listening(self) -> None:
        """For when Spark is about to be stopped: it complains of every task and connection that
        ends by that.
        """
        self._heard = False

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        from pyspark import SparkContext

        atexit.unregister(self.stop)
        self.stop_listening()
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
        self._listener.join(_SECONDS_TO_END)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with io.TextIOWrapper(self._process.stdout, encoding="utf-8", errors="replace") as output:
            for line in output:
                text = line.rstrip()
                if len(self._said) < _FIRST_LINES:
                    self._said.append(text)
                note = not self._heard or not text or text.startswith(_NOTES)
                _log.log(logging.DEBUG if note else logging.WARNING, "%s", text)


def _command(conf: SparkConf) -> list[str]:
    settings = [word for name, value in conf.getAll() for word in ("--conf", f"{name}={value}")]
    wanted = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(spark_home() / "bin" / "spark-submit"), *settings, *wanted]


def _gateway(port: int, secret: str) -> Any:
    """PySpark's end of it. It has no way but the environment to be told of a JVM that runs
    already.
    """
    from pyspark.java_gateway import launch_gateway

    launch: Any = launch_gateway  # PySpark's internals have no types
    with _environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
        return launch()


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for as long as PySpark looks at them."""
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
