"""The folders in which servers stage statements, and the journals in there.

They are on this machine, or on a file system that is mounted here, and not behind the storage
interface: only a file system has owners, permissions, locks and files that can be appended to.
Nobody but the server's own user may change what is in there.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparkport.errors import PreconditionFailed
from sparkport.spark.lake.liveness import FILES

__all__ = [
    "JournalFile",
    "journals_in",
    "new_folder",
    "new_server_folder",
    "remove_folder",
    "remove_folders_in",
    "remove_unless_used",
    "server_folders",
]

_log = logging.getLogger(__name__)

_JOURNAL = ".journal"


def server_folders(root: Path) -> list[Path]:
    """One for each server that has staged something, dead or alive.

    Raises: PreconditionFailed when others could have put something there; OSError.
    """
    if not os.path.lexists(root):
        return []
    _expect_private(root)
    return sorted(root.iterdir())


def new_server_folder(root: Path) -> Path:
    """Raises: PreconditionFailed when others could change what is in there; OSError."""
    root.parent.mkdir(parents=True, exist_ok=True)
    root.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    _expect_private(root)
    folder = root / uuid.uuid4().hex
    folder.mkdir(mode=stat.S_IRWXU)
    return folder


def _expect_private(folder: Path) -> None:
    """Raises: PreconditionFailed unless a folder is one that nobody but our user can change;
    OSError.
    """
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        problem = "is not a folder, or a link to one: name a folder"
    elif status.st_uid != os.geteuid():
        problem = "belongs to another user: run as that user, or name another folder"
    elif _is_closed(folder, stat.S_IMODE(status.st_mode)):
        return
    else:
        problem = "can be changed by other users: remove what is in it that you do not know, and their permission"
    _log.error("the staging folder %s %s", folder, problem)
    raise PreconditionFailed(f"nothing can be changed: the staging folder of the server {problem}")


def _is_closed(folder: Path, mode: int) -> bool:
    """Close a folder of ours to others, as older versions did not; False if they may have put
    something there.
    """
    os.chmod(folder, stat.S_IRWXU)
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and any(folder.iterdir()):
        os.chmod(folder, mode)  # what it looks like now would be believed the next time
        return False
    return True


def new_folder(folder: Path) -> None:
    """Make a folder in one that is private. Raises: OSError."""
    folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)


@dataclass(frozen=True, slots=True)
class JournalFile:
    """What a statement writes down before it makes something: a line for each."""

    path: Path

    @classmethod
    def of(cls, folder: Path, statement: str) -> JournalFile:
        return cls(folder / f"{statement}{_JOURNAL}")

    @property
    def statement(self) -> str:
        """The id of the statement, if the file was named by a server."""
        return self.path.name.removesuffix(_JOURNAL)

    def exists(self) -> bool:
        """Raises: OSError."""
        return self.path.exists()

    def append(self, lines: Iterable[str]) -> None:
        """Add lines, and see to it that they survive a power cut. Raises: OSError."""
        with open(self.path, "a", encoding="utf-8") as output:
            output.writelines(f"{line}\n" for line in lines)
            output.flush()
            os.fsync(output.fileno())

    def lines(self) -> Sequence[str]:
        """Those that have an end: the last one may lack it, if the machine has died. Raises:
        OSError, ValueError.
        """
        return self.path.read_text(encoding="utf-8").split("\n")[:-1]

    def remove(self) -> None:
        """It may have gone already. Raises: OSError."""
        self.path.unlink(missing_ok=True)


def journals_in(folder: Path) -> list[JournalFile]:
    """Raises: OSError."""
    return [JournalFile(path) for path in folder.glob(f"*{_JOURNAL}")]


def remove_folder(folder: Path) -> None:
    """With all that is in it, as far as possible. Never raises."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_folders_in(folder: Path) -> None:
    """What was staged there is of no use to anybody; journals stay. Raises: OSError."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def remove_unless_used(folder: Path) -> None:
    """Remove the folder of a server in which no statement has left anything. Never raises."""
    with suppress(OSError):
        if all(each.name in FILES for each in folder.iterdir()):
            shutil.rmtree(folder)
