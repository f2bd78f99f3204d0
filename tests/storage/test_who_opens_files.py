"""Files of the lake are opened by storages, and by nobody else."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

SPARK = Path(__file__).parents[2] / "src" / "sparkport" / "spark"

ALLOWED = {
    "iceberg/locations.py": "opens data files by their storages, and remembers their footers",
    "iceberg/local_storage.py": "the local storage",
    "iceberg/pages.py": "has Arrow read pages that it puts into a file in memory",
    "iceberg/aws_credentials.py": "profiles and tokens of AWS",
    "iceberg/azure_file_system.py": "makes Arrow's file system of Azure",
    "iceberg/gcs_file_system.py": "makes Arrow's file system of Google Cloud Storage",
    "iceberg/object_storage.py": "the storage of object stores",
    "iceberg/s3_settings.py": "makes Arrow's file system of S3",
    "lake/staging_folder.py": "private folders and journals of servers: owners, modes, appending",
    "lake/liveness.py": "locks and heartbeats in these folders; the id of the machine",
    "lake/folders.py": "Java removes the folders of dropped tables, wherever they are",
    "lake/iceberg_commit.py": "Java reads the manifests that it has written for a commit",
    "write/java_files.py": "Java measures files, for tables that want unusual metrics",
    "ddl/create_table.py": "Java writes the metadata of new tables, and removes what is left",
    "ddl/new_tables.py": "Java reads and removes the manifests of a table that is only drafted",
    "write/spark_changes.py": "Java reads the manifests that Spark has written on a branch",
    "jvm/gateway.py": "Java reads metadata that only Spark can reach, and holds a lock",
    "jvm/hadoop_storage.py": "the storage of whatever only Hadoop knows",
    "jvm/session/": "jars, Java itself, and the database and lock of an embedded lake",
    "warming.py": "the folder of a scratch lake, which is never a client's",
    "jvm/relay/daemon.py": "looks at the archive that Python's modules come in",
}
"""Modules, or folders of them, and what they need files for."""

_BUILT_IN = frozenset({"open"})
_MODULES = frozenset({"os", "shutil", "tempfile", "mmap", "fsspec"})
_HARMLESS = frozenset(
    {
        *("os.cpu_count", "os.environ", "os.fspath", "os.geteuid", "os.getpid", "os.pathsep"),
        "os.urandom",
        *("os.path.basename", "os.path.dirname", "os.path.join", "os.register_at_fork"),
        "tempfile.gettempdir",
    }
)
"""Of those modules: what opens nothing, and looks at nothing."""
_ARROW = frozenset({"memory_map", "create_memory_map", "OSFile", "PythonFile", "FSSpecHandler"})
_ICEBERG = frozenset({"PyArrowFileIO", "FsspecFileIO", "load_file_io"})
_PATH = frozenset(
    {
        *("read_text", "read_bytes", "write_text", "write_bytes", "touch", "mkdir", "rmdir"),
        *("unlink", "iterdir", "glob", "rglob", "stat", "lstat", "is_file", "is_dir", "symlink_to"),
        *("is_symlink", "samefile", "hardlink_to", "chmod"),
    }
)
"""Methods of Path that look at a file system; `exists`, `rename` and `replace` are other things'
names as well.
"""
_JAVA = re.compile(r"hadoop\.fs\.|HadoopInputFile|RandomAccessFile|(^|[._])table\.io$")
"""Of Java, also the files of an org.apache.iceberg.Table."""


def test_only_storages_open_files() -> None:
    found = {
        f"{name}:{line}": what
        for name, tree in _modules()
        if not _is_allowed(name)
        for line, what in _opened(tree)
    }
    assert found == {}, "use storage_at(location, properties) of iceberg/locations.py"


def test_the_exceptions_are_needed() -> None:
    used = {name for name, tree in _modules() if any(_opened(tree))}
    unused = [place for place in ALLOWED if not any(name.startswith(place) for name in used)]
    assert unused == []


def test_this_test_sees_files_being_opened() -> None:
    for text in (
        "open('x')",
        "import os\nos.unlink('x')",
        "os.path.getsize('x')",
        "from shutil import rmtree",
        "from os.path import exists",
        "pa.memory_map('x')",
        "Path('x').read_text()",
        "folder.iterdir()",
        "from pyarrow.fs import LocalFileSystem",
        "import pyarrow.fs",
        "pq.ParquetFile('x')",
        "pq.read_table('x')",
        "PyArrowFileIO({})",
        "jvm.org.apache.hadoop.fs.Path('x')",
    ):
        assert list(_opened(ast.parse(text))), text
    for text in ("storage.open(x)", "os.environ['x']", "Path('x') / 'y'", "pq.ParquetWriter(sink)"):
        assert not list(_opened(ast.parse(text))), text


def test_the_format_of_data_files_is_decided_once() -> None:
    quoted = re.compile(r"""b?["'](parquet|.*\.parquet|PARQUET:field_id)["']""", re.IGNORECASE)
    found = [
        name
        for name, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str | bytes)
        and quoted.fullmatch(repr(node.value))
        and node.value != "pyarrow.parquet"
    ]
    assert set(found) == {"iceberg/data_format.py"}


@functools.cache
def _modules() -> list[tuple[str, ast.Module]]:
    return [
        (str(path.relative_to(SPARK)), ast.parse(path.read_text("utf-8")))
        for path in sorted(SPARK.rglob("*.py"))
    ]


def _is_allowed(name: str) -> bool:
    return any(
        name == place or (place.endswith("/") and name.startswith(place)) for place in ALLOWED
    )


def _opened(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a module does something with files by itself, or gets hold of what would."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _BUILT_IN | _ICEBERG | _ARROW:
                yield node.lineno, name
            case ast.Call(func=ast.Attribute(attr="ParquetFile" | "read_table" as name)):
                if not (node.args and _is_opened_by_storage(node.args[0])):
                    yield node.lineno, name
            case ast.Attribute(attr=name) if name in _ARROW | _ICEBERG | _PATH:
                yield node.lineno, name
            case ast.Attribute():
                text = _dotted(node)
                if _is_of_files(text) or _JAVA.search(text):
                    yield node.lineno, text
            case ast.ImportFrom(module=str() as module, names=names):
                for each in names:
                    text = f"{module}.{each.name}"
                    if _is_of_files(text) or module == "pyarrow.fs" or each.name in _ICEBERG:
                        yield node.lineno, text
            case ast.Import(names=names):
                for each in names:
                    if each.name == "pyarrow.fs":
                        yield node.lineno, each.name


def _dotted(node: ast.expr) -> str:
    """What stands before a dot counts only as far as it is made of names."""
    match node:
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value)}.{name}"
        case ast.Name(id=name):
            return name
        case _:
            return ""


def _is_of_files(name: str) -> bool:
    """Whether a dotted name is one of modules for files, and not among the harmless ones."""
    return name.partition(".")[0] in _MODULES and not any(
        f"{each}.".startswith(f"{name}.") or name.startswith(f"{each}.") for each in _HARMLESS
    )


def _is_opened_by_storage(source: ast.expr) -> bool:
    return isinstance(source, ast.Call) and _dotted(source.func) == "storage.open"
