"""Packages for processes of their own, which the environment of the tests is to do without.

They are installed once, into a folder of the user's cache, beside that environment.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["installed"]

_SECONDS = 100


def installed(name: str, wheels: Sequence[str]) -> Path:
    """The folder with these packages, for PYTHONPATH; `name` tells it from others."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "sparkport", "readers")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache / f"{name}-python-{version}"
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            made = cache / f".{folder.name}"
            shutil.rmtree(made, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(made)]
            subprocess.run([*command, *wheels], check=True, timeout=_SECONDS)
            made.rename(folder)
    return folder
