"""Files that others must not read or change: they could pose as anyone, or grant themselves all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sparkport.errors import BadRequest

__all__ = [
    "doubt_changeable",
    "doubt_readable",
    "expect_unchangeable",
    "read_private",
    "read_secret",
]

_LEAST_BYTES = 32
_READABLE = stat.S_IRGRP | stat.S_IROTH
_CHANGEABLE = stat.S_IWGRP | stat.S_IWOTH


def read_private(name: str) -> bytes:
    """Read a file that only its owner can read.

    A file of root's may be readable by the group of a server that is not root's: so Kubernetes
    mounts secrets. Raises: BadRequest, which says what to do.
    """
    try:
        with open(name, "rb") as file:
            found = os.fstat(file.fileno())
            content = file.read()
    except OSError as error:
        raise BadRequest(f"the file {name} cannot be read: {error.strerror}") from error
    mounted = found.st_uid == 0 and os.geteuid() != 0
    for bits, what in ((stat.S_IROTH if mounted else _READABLE, "read"), (_CHANGEABLE, "change")):
        if found.st_mode & bits:
            raise BadRequest(f"others than its owner can {what} {name}: chmod 600 {name}")
    return content


def read_secret(name: str) -> bytes:
    """Read the key that signs handles, from a file that only its owner can read.

    Raises: BadRequest, which says what to do.
    """
    content = read_private(name)
    if len(content) < _LEAST_BYTES or not content.strip():
        command = f"head -c {_LEAST_BYTES} /dev/urandom > {name}"
        remedy = f"fill it with at least {_LEAST_BYTES} random ones: {command}"
        raise BadRequest(f"{name} holds {len(content)} bytes, which can be guessed: {remedy}")
    return content


def expect_unchangeable(name: str) -> None:
    """Raises: BadRequest when everybody can write the file. A missing file is not an error here."""
    if _mode(name) & stat.S_IWOTH:
        raise BadRequest(_changeable(name))


def doubt_changeable(name: str) -> list[str]:
    """A warning when everybody can write the file."""
    return [_changeable(name)] if _mode(name) & stat.S_IWOTH else []


def doubt_readable(name: str) -> list[str]:
    """A warning when everybody can read a file of hashes."""
    if not _mode(name) & stat.S_IROTH:
        return []
    return [
        f"everybody on this machine can read {name}, and so who there is, though no token: "
        f"chmod o-r {name}"
    ]


def _changeable(name: str) -> str:
    return f"everybody on this machine can change {name}: chmod o-w {name}"


def _mode(name: str) -> int:
    try:
        return Path(name).stat().st_mode
    except OSError:
        return 0
