"""This Python, with all its packages, as an archive that runs wherever it is unpacked.

The archive has the interpreter, the standard library, the packages of this environment, and the
shared libraries that they load beyond those of the C library. `bin/python` is a small script: it
names the place of the libraries and runs the interpreter, which finds its standard library beside
itself. So nothing has to be installed, and no path is written into the archive.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path

from sparkport.errors import PreconditionFailed
from sparkport.spark.jvm.worker_python import NOTE, note_of_this_python

__all__ = ["contents", "platform_name", "write_archive"]

_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_LIBRARY = f"{sys.platlibdir}/{_VERSION}"
_PACKAGES = f"{_LIBRARY}/site-packages"
_SHARED = "lib/shared"
_LEVEL = 5
"""Of compression: higher ones take twice as long for 2 % less."""

_LAUNCHER = f"""\
#!/bin/sh
# Runs the Python of this folder, wherever it is.
here=$(CDPATH= cd -P -- "${{0%/*}}/.." && pwd) || exit 1
unset PYTHONHOME
export PYTHONNOUSERSITE=1
export LD_LIBRARY_PATH="$here/{_SHARED}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/bin/{_VERSION}" "$@"
"""

_NOWHERE = frozenset({"__pycache__", "test", "tests", "idle_test"})
"""Folders that no executor needs, wherever they are."""
_NOT_OF_PYTHON = re.compile(
    r"(site-packages|dist-packages|config-.*|ensurepip|idlelib|lib2to3|pydoc_data|tkinter"
    r"|turtledemo|turtle\.py|EXTERNALLY-MANAGED)"
)
_NOT_OF_PACKAGES = re.compile(
    r"(pip|pip-[^/]*\.dist-info|__editable__[^/]*|[^/]*\.dist-info/direct_url\.json"
    r"|pyarrow/(include|src)|pyspark/(bin|data|examples|jars|licenses|python|sbin))"
)
"""Spark's own jars and programs are where its executors are."""


def contents() -> dict[str, Path]:
    """The files to pack, by their names in the archive; `write_archive` adds the launcher.

    Raises: PreconditionFailed on systems other than Linux.
    """
    if not sys.platform.startswith("linux"):
        raise PreconditionFailed("an environment can be packed on Linux only, where executors run")
    interpreter = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    library = Path(os.__file__).resolve().parent
    found = {f"bin/{_VERSION}": interpreter}
    found |= _below(library, _LIBRARY, _NOT_OF_PYTHON)
    places = list(_package_folders())
    for place in reversed(places):  # the first one on the path wins
        found |= _below(place, _PACKAGES, _NOT_OF_PACKAGES)
    for package in _editable_packages():
        found |= _package(package)
    inside = (library, *(each.resolve() for each in places))
    for shared in _shared_libraries():
        if not any(folder in shared.resolve().parents for folder in inside):
            found[f"{_SHARED}/{shared.name}"] = shared
    return found


def write_archive(
    files: Mapping[str, Path], archive: Path, report: Callable[[int], object]
) -> None:
    """Write the archive; `report` is told how many bytes are packed. A failure leaves no file.

    Raises: OSError.
    """
    unfinished = archive.with_name(f".{archive.name}.{os.getpid()}")
    done = 0
    try:
        with tarfile.open(unfinished, "w:gz", compresslevel=_LEVEL, dereference=True) as tar:
            tar.addfile(*_text(NOTE, note_of_this_python()))
            tar.addfile(*_text("bin/python", _LAUNCHER))
            tar.addfile(_link("bin/python3", "python"))
            # Debian's Python looks for packages there.
            tar.addfile(_link(f"{_LIBRARY}/dist-packages", "site-packages"))
            for name, path in sorted(files.items()):
                tar.add(path, name, recursive=False, filter=_of_nobody)
                done += path.stat().st_size
                report(done)
        unfinished.replace(archive)
    except BaseException:
        with suppress(FileNotFoundError):
            unfinished.unlink()
        raise


def platform_name() -> str:
    """The machines on which the archive runs."""
    library, version = platform.libc_ver()
    newer = f" with {library} {version} or newer" if version else ""
    return f"{platform.system()} on {platform.machine()}{newer}"


def _package_folders() -> Iterator[Path]:
    """The folders of installed packages that this interpreter looks into, the first one first."""
    for each in map(Path, sys.path):
        if each.is_dir() and (
            each.name in ("site-packages", "dist-packages") or any(each.glob("*.dist-info"))
        ):
            yield each


def _below(folder: Path, name: str, spared: re.Pattern[str]) -> dict[str, Path]:
    """All files below a folder, which is called `name` in the archive, but some."""

    def files(place: Path, inside: str, above: frozenset[Path]) -> Iterator[tuple[str, Path]]:
        here = place.resolve()
        if here in above:  # links may be a circle
            return
        for each in place.iterdir():
            relative = f"{inside}{each.name}"
            if spared.fullmatch(relative) or each.suffix == ".pyc":
                continue
            if each.is_file():
                yield f"{name}/{relative}", each
            elif each.is_dir() and each.name not in _NOWHERE:
                yield from files(each, f"{relative}/", above | {here})

    return dict(files(folder, "", frozenset()))


def _editable_packages() -> Iterator[str]:
    """Packages that are not in any of the folders, because they are being developed."""
    names = {"sparkport"}  # it may also come from a PYTHONPATH
    for each in distributions():
        if _is_editable(each):
            names.update((each.read_text("top_level.txt") or "").split())
    return iter(sorted(names))


def _is_editable(distribution: Distribution) -> bool:
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


def _package(name: str) -> dict[str, Path]:
    found = find_spec(name)
    if found is None:
        return {}
    if found.submodule_search_locations:
        folder = Path(next(iter(found.submodule_search_locations)))
        return _below(folder, f"{_PACKAGES}/{name}", re.compile("(?!)"))
    return {f"{_PACKAGES}/{Path(found.origin).name}": Path(found.origin)} if found.origin else {}


def _shared_libraries() -> list[Path]:
    """What a process loads that has all modules, without what belongs to the C library."""
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", _ALL_MODULES],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise PreconditionFailed(
            f"the libraries of {sys.executable} cannot be listed: {done.stderr.strip()[-300:]}"
        )
    named = {Path(each).name: Path(each) for each in json.loads(done.stdout) if "/" in each}
    return [path for name, path in named.items() if not _OF_C.match(name)]


_OF_C = re.compile(
    r"(ld-(linux|musl)[^/]*|ld64|lib(c|m|mvec|pthread|dl|rt|util|resolv|nsl|anl|nss_\w+|thread_db))"
    r"(\.|-\d)"
)
"""Libraries that must fit the system's loader, and that every machine has."""

_ALL_MODULES = """
import contextlib, ctypes, importlib, json, os, re
folder = os.path.join(os.path.dirname(os.__file__), "lib-dynload")
names = {each.partition(".")[0] for each in os.listdir(folder)} if os.path.isdir(folder) else set()
names = {each for each in names if not re.match("_test|_?xx|_tkinter|_?curses|readline", each)}
for name in [*sorted(names), "pyarrow.dataset", "duckdb", "pyiceberg.schema", "zstandard"]:
    with contextlib.suppress(Exception):
        importlib.import_module(name)
class Library(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
loaded = []
def seen(library, size, data):
    loaded.append(os.fsdecode(library.contents.name or b""))
    return 0
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Library), ctypes.c_size_t, ctypes.c_void_p)
ctypes.CDLL(None).dl_iterate_phdr(kind(seen), None)
print(json.dumps(loaded))
"""
"""It asks the loader: names are then those by which libraries are looked up."""


def _text(name: str, text: str) -> tuple[tarfile.TarInfo, io.BytesIO]:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o755
    return entry, io.BytesIO(text.encode())


def _link(name: str, target: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the packer's name, and readable for whoever unpacks it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o111 else 0o644
    return entry
