"""The JVM that PySpark starts for an embedded lake: what it says, and its end."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

from sparkport.errors import PreconditionFailed
from sparkport.spark.session.jars import spark_home

if TYPE_CHECKING:
    from pyspark import SparkConf

__all__ = ["Jvm"]

_log = logging.getLogger("sparkport.spark.session.jvm")

_NOTES = ("WARNING: Using incubator modules", "NOTE: Picked up ", "Picked up ")
"""What Java says about options that Spark's own launcher or the user's environment gave it."""
_EXCEPTION = re.compile(r'^Exception in thread "main" [\w.$]+: |^Error: ')
_FIRST_LINES = 20
_SECONDS_TO_END = 10.0


class Jvm:
    """A JVM with PySpark's gateway. It ends with this process, also when that is killed: its standard input closes."""

    def __init__(self, conf: SparkConf, environment: Mapping[str, str]) -> None:
        """Raises: PreconditionFailed when it does not come up."""
        from pyspark.errors import PySparkRuntimeError
        from pyspark.java_gateway import launch_gateway

        reading, writing = os.pipe()
        self._said: list[str] = []
        self._up = False  # until then, what it says is part of the error
        # Its standard output too: ours belongs to the program that has started Spark.
        output = open(reading, encoding="utf-8", errors="replace")  # noqa: SIM115 - the thread closes it
        self._listener = threading.Thread(target=self._listen, args=(output,), name="sparkport-jvm-output", daemon=True)
        self._listener.start()
        try:
            with _environment({"SPARK_HOME": str(spark_home()), **environment}):
                launch: Any = launch_gateway  # PySpark's internals have no types
                gateway = launch(conf, {"stdout": writing, "stderr": writing})
        except PySparkRuntimeError as error:
            os.close(writing)
            self._listener.join(_SECONDS_TO_END)
            raise PreconditionFailed(f"Spark does not start: {self.complaint}") from error
        except BaseException:
            os.close(writing)
            raise
        os.close(writing)
        self.gateway = gateway
        self._up = True
        atexit.register(self.stop)  # it would outlive us by a second, and nobody would collect its exit code

    @property
    def complaint(self) -> str:
        """What it said first that explains why it has not come up."""
        lines = [line for line in self._said if line and not line.startswith(("\t", *_NOTES))]
        return _EXCEPTION.sub("", lines[0]) if lines else "Java says nothing"

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        from pyspark import SparkContext

        atexit.unregister(self.stop)
        self.gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # the next SparkContext starts a JVM of its own
        process: subprocess.Popen[bytes] = self.gateway.proc
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listener.join(_SECONDS_TO_END)

    def _listen(self, output: IO[str]) -> None:
        with output:
            for line in output:
                text = line.rstrip()
                if len(self._said) < _FIRST_LINES:
                    self._said.append(text)
                note = not self._up or not text or text.startswith(_NOTES)
                _log.log(logging.DEBUG if note else logging.WARNING, "%s", text)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for a process that PySpark starts, which has no other way to give it some."""
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
