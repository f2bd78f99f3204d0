"""Files in places that only Hadoop knows, such as HDFS, through the JVM.

The server's process has a JVM, and so it can read metadata, manifests and keys there, and write.
Spark's workers have none: what is too large to be read here is read by Spark's own engine.
"""

from __future__ import annotations

import errno
import io
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

from sparkport.spark.iceberg.locations import ANY_SCHEME, register
from sparkport.spark.iceberg.storage import MissingFile, Storage, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HadoopStorage", "serve_hadoop"]

_MOST_BYTES = 4 * 1024 * 1024
"""That go from or to the JVM in one call, in which they are text."""
_MISSING = ("java.io.FileNotFoundException", "java.nio.file.NoSuchFileException")
_NOT_FOLDER = "org.apache.hadoop.fs.ParentNotDirectoryException"
_EXISTS = ("org.apache.hadoop.fs.FileAlreadyExistsException",)
_DENIED = (
    "org.apache.hadoop.security.AccessControlException",
    "java.nio.file.AccessDeniedException",
)


def serve_hadoop(spark: SparkSession) -> None:
    """Have all schemes that no other storage is for be served by the JVM of a session."""
    HadoopStorage.spark = spark
    register(ANY_SCHEME, HadoopStorage)


class HadoopStorage(Storage):
    """Files of Hadoop's file systems, with the settings of the session's Hadoop configuration."""

    for_workers = False
    spark: ClassVar[SparkSession | None] = None
    _known: ClassVar[set[str]] = set()
    """Schemes that there are file systems for."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        pass

    @classmethod
    def reaches(cls, location: str) -> bool:
        scheme, hadoop = scheme_of(location), cls._hadoop()
        if hadoop is None:
            return False
        if scheme not in cls._known:
            try:
                with _telling(location):
                    hadoop.packages.FileSystem.getFileSystemClass(scheme, hadoop.configuration)
            except OSError:
                return False  # it may be set later
            cls._known.add(scheme)
        return True

    def open(self, location: str, size: int | None = None) -> pa.NativeFile:
        if size is None:
            size = self.size(location)
        with _telling(location):
            system, path = self._at(location)
            return pa.PythonFile(_Input(system.open(path), size, location), "r")

    def create(self, location: str) -> pa.NativeFile:
        with _telling(location):
            system, path = self._at(location)
            return pa.PythonFile(_Output(system.create(path, False), location), "w")

    def make_durable(self, location: str) -> None:
        """Nothing to do: a closed file is as safe as the file system makes it."""

    def files_below(self, folder: str) -> list[str]:
        folder, found = folder.rstrip("/"), []
        try:
            with _telling(folder):
                system, path = self._at(folder)
                start = len(str(system.makeQualified(path).toString()))
                files = system.listFiles(path, True)
                while files.hasNext():
                    found.append(folder + str(files.next().getPath().toString())[start:])
        except MissingFile:
            return []
        return sorted(found)

    def delete(self, location: str) -> None:
        try:
            with _telling(location):
                system, path = self._at(location)
                system.delete(path, False)
        except MissingFile:
            pass

    def size(self, location: str) -> int:
        return int(self._status(location).getLen())

    def modified(self, location: str) -> float:
        return float(self._status(location).getModificationTime()) / 1000

    def _status(self, location: str) -> Any:
        with _telling(location):
            system, path = self._at(location)
            status = system.getFileStatus(path)
            if status.isDirectory():
                raise IsADirectoryError(errno.EISDIR, "this is a folder", location)
            return status

    def _at(self, location: str) -> tuple[Any, Any]:
        """Hadoop's file system, which Hadoop keeps, and its path."""
        hadoop = self._hadoop()
        if hadoop is None:
            raise OSError(f"only Spark reads {scheme_of(location)}, and there is no session of it")
        path = hadoop.packages.Path(location)
        return path.getFileSystem(hadoop.configuration), path

    @classmethod
    def _hadoop(cls) -> _Hadoop | None:
        """None in a process without a session, or once it has ended."""
        if cls.spark is None or cls.spark.sparkContext._jsc is None or cls.spark._jvm is None:
            return None
        configuration = cls.spark.sparkContext._jsc.hadoopConfiguration()
        return _Hadoop(cls.spark._jvm.org.apache.hadoop.fs, configuration)


class _Hadoop(NamedTuple):
    packages: Any
    """org.apache.hadoop.fs"""
    configuration: Any


@contextmanager
def _telling(location: str) -> Iterator[None]:
    """Raise Java's errors as Python's. Their texts stay in Java: they may name anything."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        name = str(error.java_exception.getClass().getName())
        if name in _MISSING or name == _NOT_FOLDER:
            raise MissingFile(location) from error
        if name in _EXISTS:
            raise FileExistsError(errno.EEXIST, "there is such a file", location) from error
        if name in _DENIED:
            raise PermissionError(errno.EACCES, "permission denied", location) from error
        raise OSError(f"Hadoop: {name.rpartition('.')[2]}") from error
    except PySparkException as error:  # a few of Java's errors, which PySpark knows
        raise OSError("Hadoop takes neither the name nor its settings") from error
    except Py4JError as error:
        raise OSError("Hadoop cannot be asked: the JVM does not answer") from error


class _Input(io.RawIOBase):
    """A file that Java has opened. Arrow asks for one range at a time."""

    def __init__(self, stream: Any, size: int, location: str) -> None:
        super().__init__()
        self._stream = stream
        self._size = size
        self._location = location
        self._position = 0
        self._lock = threading.Lock()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def read(self, length: int = -1) -> bytes:
        left = max(self._size - self._position, 0)
        left = left if length < 0 else min(left, length)
        pieces = []
        with self._lock, _telling(self._location):
            self._stream.seek(self._position)
            while left > 0:
                piece = bytes(self._stream.readNBytes(min(left, _MOST_BYTES)))
                if not piece:
                    break
                pieces.append(piece)
                left -= len(piece)
                self._position += len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        if not self.closed:
            with _telling(self._location):
                self._stream.close()
        super().close()


class _Output(io.RawIOBase):
    """A file that Java has created."""

    def __init__(self, stream: Any, location: str) -> None:
        super().__init__()
        self._stream = stream
        self._location = location
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, content: Any) -> int:
        every = memoryview(content).cast("B")
        with _telling(self._location):
            for start in range(0, len(every), _MOST_BYTES):
                self._stream.write(bytes(every[start : start + _MOST_BYTES]))
        self._position += len(every)
        return len(every)

    def close(self) -> None:
        if not self.closed:
            with _telling(self._location):
                self._stream.close()
        super().close()
