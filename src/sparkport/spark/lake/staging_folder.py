"""The folders in which servers stage statements, and the journals in there.

They are on this machine, or on a mounted file system, and not behind the storage interface: only a
file system has owners, permissions, locks and files that can be appended to. Only the server's own
user may change what is in there.
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
    """The folders of all servers that have staged something, dead or alive.

    Raises: PreconditionFailed when others could have put something there; OSError.
    """
    if not os.path.lexists(root):
        return []
    _expect_private(root)
    return sorted(root.iterdir())


def new_server_folder(root: Path) -> Path:
    """Make a folder for this server.

    Raises: PreconditionFailed when others could change what is in there; OSError.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    root.mkdir(mode=stat.S_IRWXU, exist_ok=True)
    _expect_private(root)
    folder = root / uuid.uuid4().hex
    folder.mkdir(mode=stat.S_IRWXU)
    return folder


def _expect_private(folder: Path) -> None:
    """Raises: PreconditionFailed unless only our user can change the folder; OSError."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        problem = "is not a folder, or a link to one: name a folder"
    elif status.st_uid != os.geteuid():
        problem = "belongs to another user: run as that user, or name another folder"
    elif _is_closed(folder, stat.S_IMODE(status.st_mode)):
        return
    else:
        problem = (
            "can be changed by other users: remove what is in it that you do not know, "
            "and their permission"
        )
    _log.error("the staging folder %s %s", folder, problem)
    raise PreconditionFailed(f"nothing can be changed: the staging folder of the server {problem}")


def _is_closed(folder: Path, mode: int) -> bool:
    """Close our folder to others, as older versions did not.

    False if others may have put something there.
    """
    os.chmod(folder, stat.S_IRWXU)
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and any(folder.iterdir()):
        os.chmod(folder, mode)  # leave it open: the next look must not trust it
        return False
    return True


def new_folder(folder: Path) -> None:
    """Make a folder in a private folder. Raises: OSError."""
    folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal: a statement adds a line for each thing before it makes it."""

    path: Path

    @classmethod
    def of(cls, folder: Path, statement: str) -> JournalFile:
        return cls(folder / f"{statement}{_JOURNAL}")

    @property
    def statement(self) -> str:
        """The id of the statement, if a server named the file."""
        return self.path.name.removesuffix(_JOURNAL)

    def exists(self) -> bool:
        """Whether the file is there. Raises: OSError."""
        return self.path.exists()

    def append(self, lines: Iterable[str]) -> None:
        """Add lines that survive a power cut. Raises: OSError."""
        with open(self.path, "a", encoding="utf-8") as output:
            output.writelines(f"{line}\n" for line in lines)
            output.flush()
            os.fsync(output.fileno())

    def lines(self) -> Sequence[str]:
        """The lines that are complete. The last may not be, if the machine died.

        Raises: OSError, ValueError.
        """
        return self.path.read_text(encoding="utf-8").split("\n")[:-1]

    def remove(self) -> None:
        """Remove the file, which may be gone already. Raises: OSError."""
        self.path.unlink(missing_ok=True)


def journals_in(folder: Path) -> list[JournalFile]:
    """The journals in a server's folder. Raises: OSError."""
    return [JournalFile(path) for path in folder.glob(f"*{_JOURNAL}")]


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as possible. Never raises."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_folders_in(folder: Path) -> None:
    """Remove what statements staged, which is of no more use; journals stay. Raises: OSError."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def remove_unless_used(folder: Path) -> None:
    """Remove the folder of a server in which no statement has left anything. Never raises."""
    with suppress(OSError):
        if all(each.name in FILES for each in folder.iterdir()):
            shutil.rmtree(folder)
