"""The Python of Spark's workers: an environment that `sparkport pack` has packed, or this one."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sparkport.errors import BadRequest

__all__ = [
    "NOTE",
    "PYTHON",
    "is_near",
    "missing_python",
    "note_of_this_python",
    "own_version",
    "worker_settings",
]

NOTE = "environment.json"
"""The first file of a packed environment: the versions that it has."""
PYTHON = "spark.pyspark.python"
_VARIABLE = "PYSPARK_PYTHON"
_PLACE = "environment"
_NEAR = ("127.0.0.1", "localhost")


def worker_settings(master: str, environment: str) -> dict[str, str]:
    """The settings by which workers get their Python; `environment` is a packed one, or empty.

    In local mode they run this interpreter. Raises: BadRequest for an archive that does not fit.
    """
    if master.startswith("local"):
        return {PYTHON: sys.executable}
    if environment:
        archives = "spark.yarn.dist.archives" if master.startswith("yarn") else "spark.archives"
        return {
            archives: f"{_checked(environment)}#{_PLACE}",
            PYTHON: f"./{_PLACE}/bin/python",
        }
    return {PYTHON: os.environ.get(_VARIABLE, sys.executable)} if is_near(master) else {}


def is_near(master: str) -> bool:
    """Whether the executors run on this machine, so that no other machine must reach the driver."""
    return master.startswith("local") or urlsplit(master).hostname in _NEAR


def missing_python(master: str, environment: str, conf: Mapping[str, str]) -> str:
    """What is to be said of workers whose Python nobody has chosen; empty where all is well."""
    if environment and master.startswith("local"):
        return "worker_environment is not used: Spark runs in this process, with this Python"
    if environment or is_near(master) or PYTHON in conf or _VARIABLE in os.environ:
        return ""
    versions = json.loads(note_of_this_python())
    return (
        f"the executors of {master} run the python3 that they find, which must be Python "
        f"{versions['python']} with Sparkport {versions['sparkport']}: make an archive with "
        "`sparkport pack`, and name it with --worker-environment"
    )


def note_of_this_python() -> str:
    """The versions that executors must have, as JSON."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return json.dumps({"python": python, "sparkport": own_version()})


def own_version() -> str:
    """Sparkport's version, without an import statement: the package reaches into all layers."""
    version: str = importlib.import_module("sparkport").__version__
    return version


def _checked(environment: str) -> str:
    """Where the archive is. One that was packed by another version is refused."""
    if "://" in environment:
        return environment
    path = Path(environment).expanduser().absolute()
    try:
        with tarfile.open(path, "r:gz") as archive:
            first = archive.next()
            file = archive.extractfile(first) if first and first.name == NOTE else None
            noted = file.read().decode() if file else ""
    except FileNotFoundError as error:
        raise BadRequest(
            f"worker_environment: there is no {path}: `sparkport pack {path}` makes it"
        ) from error
    except (OSError, tarfile.TarError, EOFError) as error:
        raise BadRequest(
            f"worker_environment: {path} cannot be read as a .tar.gz: make it with `sparkport pack`"
        ) from error
    if noted and noted != note_of_this_python():
        has, wanted = json.loads(noted), json.loads(note_of_this_python())
        raise BadRequest(
            f"worker_environment: {path} has Python {has['python']} and Sparkport "
            f"{has['sparkport']}, and this server Python {wanted['python']} and Sparkport "
            f"{wanted['sparkport']}: make it again with `sparkport pack {path}`"
        )
    return str(path)
