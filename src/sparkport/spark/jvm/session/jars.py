"""The jars that Spark needs for the lake, by their Maven coordinates.

Spark's own resolver fetches them, so mirrors and proxies are set where Spark users set them
(`spark.jars.repositories`, `spark.jars.ivySettings` in spark-defaults.conf, JAVA_TOOL_OPTIONS). It
runs once, in a process of its own: a session with `spark.jars.packages` would resolve at every
start, and would put every jar on the `sys.path` of the Python workers, which costs each task 0.13
s.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkport.errors import PreconditionFailed
from sparkport.spark.jvm.session.folder_lock import locked_folder
from sparkport.spark.jvm.session.java import find_java

__all__ = [
    "AWS",
    "AZURE",
    "COORDINATES",
    "Coordinates",
    "DELTA",
    "GCP",
    "ICEBERG",
    "POSTGRES",
    "SQLITE",
    "kept_jars",
    "lake_jars",
    "spark_home",
]

_log = logging.getLogger("sparkport.spark.jvm.session.jars")

_FOLDER_VARIABLE = "SPARKPORT_JARS"
_STAGING = ".fetching-"
_SECONDS = 900
_LAST_LINES = 20


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A jar in a Maven repository."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """Its file name in Maven repositories."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def resolved_name(self) -> str:
        """Its file name from Spark's resolver."""
        return f"{self.group}_{self.file_name}"


ICEBERG = Coordinates("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")
"""Iceberg for our PySpark's versions of Spark and Scala."""
SQLITE = Coordinates("org.xerial", "sqlite-jdbc", "3.50.3.0")
POSTGRES = Coordinates("org.postgresql", "postgresql", "42.7.7")
AWS = Coordinates("org.apache.iceberg", "iceberg-aws-bundle", ICEBERG.version)
GCP = Coordinates("org.apache.iceberg", "iceberg-gcp-bundle", ICEBERG.version)
AZURE = Coordinates("org.apache.iceberg", "iceberg-azure-bundle", ICEBERG.version)
"""Drivers of catalogs, and Iceberg's clients of object stores. Spark has all else that they need.
"""
_DELTA = "4.4.0"
DELTA = (
    Coordinates("io.delta", "delta-spark_4.1_2.13", _DELTA),
    *(
        Coordinates("io.delta", f"delta-{part}", _DELTA)
        for part in ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")
    ),
    Coordinates("io.unitycatalog", "unitycatalog-client", "0.6.0"),
)
"""Delta for our PySpark's versions of Spark and Scala."""
COORDINATES = (ICEBERG, SQLITE)
"""The jars of a lake in a folder."""


def lake_jars(
    jars: Sequence[str | os.PathLike[str]] | None = None,
    wanted: Sequence[Coordinates] = COORDINATES,
) -> tuple[Path, ...]:
    """The paths of the jars: those given, else those wanted, after fetching what is missing.

    Ours are kept in the folder that SPARKPORT_JARS names, else in the user's cache. A folder that
    holds them all is only read, so it may be filled elsewhere for a machine without network. Any
    number of processes may call this at once; one of them fetches.

    Raises: PreconditionFailed when they cannot be fetched.
    """
    if jars is not None:
        return tuple(_given(Path(each)) for each in jars)
    return _fetched(wanted)


def kept_jars(wanted: Sequence[Coordinates] = COORDINATES) -> tuple[Path, ...]:
    """The paths of our jars, which may not be fetched yet."""
    place = Path(os.environ.get(_FOLDER_VARIABLE) or _cache()).expanduser().absolute()
    return tuple(place / each.file_name for each in wanted)


def spark_home() -> Path:
    """Where Spark is installed: with PySpark, unless SPARK_HOME is set.

    Raises: PreconditionFailed.
    """
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    if not (home / "bin" / "spark-submit").exists():
        raise PreconditionFailed(
            f"SPARK_HOME is {str(home)!r}, where there is no bin/spark-submit: unset it"
        )
    return home


def _given(jar: Path) -> Path:
    if not jar.is_file():
        raise PreconditionFailed(
            f"the jar {jar} does not exist: correct its path, or leave the jars to Sparkport"
        )
    return jar.absolute()


def _fetched(wanted: Sequence[Coordinates]) -> tuple[Path, ...]:
    jars = kept_jars(wanted)
    place = jars[0].parent
    if not _all_there(jars):
        try:
            place.mkdir(parents=True, exist_ok=True)
            with locked_folder(place):
                if not _all_there(jars):
                    _fetch(
                        place, [each for each in wanted if not (place / each.file_name).exists()]
                    )
        except OSError as error:
            names = ", ".join(jar.name for jar in jars)
            raise PreconditionFailed(
                f"the folder {place} cannot hold the jars for Spark ({error.strerror}): put "
                f"{names} there, "
                f"or name another folder with {_FOLDER_VARIABLE}"
            ) from error
    return jars


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "sparkport", "jars")


def _all_there(jars: tuple[Path, ...]) -> bool:
    return all(jar.is_file() for jar in jars)


def _fetch(place: Path, wanted: Sequence[Coordinates]) -> None:
    find_java()
    names = ", ".join(each.artifact for each in wanted)
    print(f"Fetching {names} for Spark (once) ...", file=sys.stderr, flush=True)  # noqa: T201 - it takes a while
    # left by a process that was killed; we hold the lock
    for leftover in place.glob(f"{_STAGING}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    # Beside their final place, so that a jar appears there whole or not at all.
    with tempfile.TemporaryDirectory(prefix=_STAGING, dir=place) as staging:
        said = _resolve(Path(staging), wanted)
        fetched = Path(staging, "jars")
        missing = [each for each in wanted if not (fetched / each.resolved_name).is_file()]
        if missing:
            _log.info("the resolver of Spark said: %s", said)
            raise PreconditionFailed(
                f"{' and '.join(map(str, missing))} cannot be fetched for Spark: check the "
                "network, set a mirror with "
                "spark.jars.repositories in spark-defaults.conf, or put "
                f"{' and '.join(each.file_name for each in missing)} "
                f"into {place}"
            )
        for each in wanted:
            shutil.move(fetched / each.resolved_name, place / each.file_name)


def _resolve(staging: Path, wanted: Sequence[Coordinates]) -> str:
    """Let spark-submit resolve the coordinates; returns the last line that it printed.

    The program that it runs only prints a version.
    """
    home = spark_home()
    command = [
        str(home / "bin" / "spark-submit"),
        *("--master", "local[1]"),
        *("--packages", ",".join(map(str, wanted))),
        *("--conf", f"spark.jars.ivy={staging}"),
        *("--class", "org.apache.hadoop.util.VersionInfo"),
        "spark-internal",
    ]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    try:
        run = subprocess.run(  # noqa: S603 - Spark's own program
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {_SECONDS} s"
    return "\n".join(run.stderr.splitlines()[-_LAST_LINES:])
