"""The Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sparkport.errors import PreconditionFailed

__all__ = ["OLDEST", "find_java"]

OLDEST = 17
"""The oldest version that Spark 4.1 supports."""

_SECONDS = 120
_REMEDY = (
    f"install Java {OLDEST} or newer (Debian, Ubuntu: apt install openjdk-{OLDEST}-jre-headless; "
    f"Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@{OLDEST}), "
    "or name the one you have with JAVA_HOME"
)


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """The `java` that Spark's launcher would start, by the same rules: JAVA_HOME, else the PATH.

    Raises: PreconditionFailed, with instructions, when there is none or it is too old.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise PreconditionFailed(
                f"JAVA_HOME is {home!r}, where there is no bin/java: {_REMEDY}"
            )
    else:
        found = shutil.which("java", path=environment.get("PATH", os.defpath))
        if found is None:
            raise PreconditionFailed(f"Spark needs Java, which was not found: {_REMEDY}")
        java = Path(found)
    version = _version(java)
    if version is None:
        raise PreconditionFailed(f"{java} does not run: {_REMEDY}")
    if version < OLDEST:
        raise PreconditionFailed(f"{java} is Java {version}, which is too old for Spark: {_REMEDY}")
    return java


def _version(java: Path) -> int | None:
    """The major version; None for macOS's stub. Java 8 calls itself 1.8."""
    try:
        run = subprocess.run(  # noqa: S603 - what JAVA_HOME and PATH name is what Spark would start
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(version[1]) if version is not None and run.returncode == 0 else None
