"""Rules that turn errors of Spark, Iceberg, Hadoop, SQLite and Arrow into messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparkport import errors
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    Cancelled,
    CatalogFault,
    Conflict,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    SchemaNotEmpty,
    SparkportError,
    Unsupported,
)

__all__ = ["CONDITIONS", "INDIRECT", "RULES", "STATES", "Link", "Rule"]


@dataclass(frozen=True, slots=True)
class Link:
    """One error in a chain of causes."""

    name: str
    """The class name, without its package."""
    message: str
    condition: str = ""
    """Spark's name of the condition."""
    state: str = ""
    """The SQLSTATE."""
    subject: str = ""
    """The object that Spark cannot find."""
    is_java: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """The message for errors of some classes, or with some words in their text."""

    names: frozenset[str]
    words: re.Pattern[str] | None
    error: type[SparkportError]
    sentence: str

    def fits(self, link: Link) -> bool:
        if self.names and link.name not in self.names:
            return False
        return self.words is None or self.words.search(link.message) is not None


# ---------------------------------------------------------------------------- what Spark has named

INDIRECT = (
    "_LEGACY_ERROR_TEMP_2250",
    "INTERNAL_ERROR",
    "FAILED_EXECUTE_UDF",
    "FAILED_READ_FILE",
    "TASK_WRITE_FAILED",
)
"""Conditions that only say that something else failed: the cause is further down the chain."""

CONDITIONS: dict[str, type[SparkportError]] = {
    "TABLE_OR_VIEW_NOT_FOUND": NotFound,
    "VIEW_NOT_FOUND": NotFound,
    "SCHEMA_NOT_FOUND": NotFound,
    "CATALOG_NOT_FOUND": NotFound,
    "ROUTINE_NOT_FOUND": NotFound,
    "COLUMN_NOT_FOUND": NotFound,
    "UNRESOLVED_COLUMN": NotFound,
    "UNRESOLVED_FIELD": NotFound,
    "UNRESOLVED_ROUTINE": NotFound,
    "UNRESOLVABLE_TABLE_VALUED_FUNCTION": NotFound,
    "TABLE_OR_VIEW_ALREADY_EXISTS": AlreadyExists,
    "SCHEMA_ALREADY_EXISTS": AlreadyExists,
    "VIEW_ALREADY_EXISTS": AlreadyExists,
    "FIELD_ALREADY_EXISTS": AlreadyExists,
    "COLUMN_ALREADY_EXISTS": AlreadyExists,
    "SCHEMA_NOT_EMPTY": SchemaNotEmpty,
    "SPARK_JOB_CANCELLED": Cancelled,
    "OPERATION_CANCELED": Cancelled,
    "PATH_NOT_FOUND": PreconditionFailed,
    "CONCURRENT_QUERY": Conflict,
    "_LEGACY_ERROR_TEMP_0035": BadRequest,  # "Operation not allowed: …", by the parser
}

STATES: dict[str, type[SparkportError]] = {
    "0A": Unsupported,
    "42501": PermissionDenied,
    "21": BadRequest,
    "22": BadRequest,
    "38": BadRequest,
    "39": BadRequest,
    "42": BadRequest,
    "P0": BadRequest,
    "53": LimitExceeded,
    "54": LimitExceeded,
    "XX": CatalogFault,
}
"""Errors by the first two characters of the SQLSTATE."""


# ------------------------------------------------------------------------------- what others threw


def _rule(names: str, error: type[SparkportError], sentence: str, words: str = "") -> Rule:
    return Rule(frozenset(names.split()), re.compile(words) if words else None, error, sentence)


_GONE = "Spark is gone, its process has ended: ask the administrator to restart the server"

_UNREACHABLE = "{what}: its catalog or its storage cannot be reached: try again later"

_PACK = "make an archive with `sparkport pack` and name it with worker_environment"

RULES: Sequence[Rule] = (
    _rule(
        "",
        PreconditionFailed,
        f"{{what}}: the Python of Spark's executors has no Sparkport, or another version: {_PACK}",
        r"No module named '?sparkport\b|Can't get attribute .*'sparkport\.",
    ),
    _rule(
        "",
        PreconditionFailed,
        "{what}: the Python of Spark's executors lacks a package that Sparkport needs: " + _PACK,
        r"No module named '?(pyarrow|duckdb|pyiceberg|pyroaring|zstandard|mmh3|typing_extensions)",
    ),
    _rule(
        "",
        PreconditionFailed,
        f"{{what}}: Spark's executors have another Python than the server: {_PACK}",
        "PYTHON_VERSION_MISMATCH",
    ),
    _rule(
        "",
        PreconditionFailed,
        f"{{what}}: the Python of Spark's executors cannot be started: {_PACK}",
        r'Cannot run program "[^"]*python',
    ),
    _rule(
        "Py4JNetworkError ConnectionRefusedError ConnectionResetError BrokenPipeError",
        CatalogFault,
        _GONE,
    ),
    _rule(
        "Py4JError",
        CatalogFault,
        _GONE,
        r"communication channel|Answer from Java|while calling \S+$",
    ),
    _rule(
        "",
        CatalogFault,
        _GONE,
        r"stopped SparkContext|SparkContext (was|has been) shut ?down|Spark session is closed",
    ),
    _rule(
        "",
        Cancelled,
        "{what}: the Spark job was cancelled",
        r"cancelled (part of|because)|Job \d+ cancelled",
    ),
    _rule(
        "NoSuchTableException NoSuchTableError NoSuchViewException NoSuchViewError",
        NotFound,
        "{what} does not exist",
    ),
    _rule("NoSuchNamespaceException NoSuchNamespaceError", NotFound, "{what} does not exist"),
    _rule("AlreadyExistsException TableAlreadyExistsError", AlreadyExists, "{what} exists already"),
    _rule(
        "NamespaceNotEmptyException NamespaceNotEmptyError",
        SchemaNotEmpty,
        "{what} is not empty: drop its tables first",
    ),
    _rule(
        "CommitStateUnknownException CommitStateUnknownError",
        CatalogFault,
        "{what}: it is not known whether the change was made: look at the table before you try "
        "again",
    ),
    _rule(
        "CommitFailedException CommitFailedError",
        Conflict,
        "{what} was changed by somebody else at the same time; nothing was changed: try again",
    ),
    _rule(
        "ValidationException",
        Conflict,
        "{what} was changed by somebody else at the same time; nothing was changed: try again",
        r"(?i)conflict|missing data files|cannot commit|found new|history has been|concurrent",
    ),
    _rule(
        "",
        Conflict,
        "{what}: the lake's catalog is locked by another process: try again",
        "SQLITE_BUSY|SQLITE_LOCKED|database (table )?is locked",
    ),
    _rule(
        "",
        LimitExceeded,
        "{what}: the storage is full: ask the administrator for room",
        "No space left on device|Disk quota exceeded|File too large|SQLITE_FULL|database or disk "
        "is full",
    ),
    _rule(
        "",
        PreconditionFailed,
        "{what}: the lake's catalog is read-only for Spark",
        "SQLITE_READONLY|SQLITE_PERM|attempt to write a readonly database",
    ),
    _rule(
        "",
        CatalogFault,
        "{what}: the lake's catalog cannot be read: its database is damaged, restore it from a "
        "backup",
        "SQLITE_CORRUPT|SQLITE_NOTADB|SQLITE_CANTOPEN|SQLITE_IOERR",
    ),
    _rule(
        "OperationalError DatabaseError",  # of Python's sqlite3
        CatalogFault,
        "{what}: the lake's catalog cannot be read: its database is damaged, restore it from a "
        "backup",
    ),
    _rule(
        "AccessControlException AccessDeniedException NotAuthorizedException ForbiddenException "
        "PermissionError",
        PermissionDenied,
        "{what}: the server is not allowed to reach its files: ask the administrator for access",
    ),
    _rule(
        "OSError",
        PermissionDenied,
        "{what}: the server is not allowed to reach its files: ask the administrator for access",
        "ACCESS_DENIED|HTTP status 403",
    ),
    _rule(
        "NotFoundException FileNotFoundException NoSuchFileException FileNotFoundError",
        PreconditionFailed,
        "{what} cannot be read: one of its files is missing; restore it, or drop what needs it",
    ),
    _rule(
        "",
        PreconditionFailed,
        "{what}: the Hive metastore makes folders itself, and has no file system for the scheme of "
        "the warehouse: add one to the metastore",
        r"^Got exception: .*No FileSystem for scheme",
    ),
    # Parquet has a copy of Thrift in a package of its own, for the heads of files.
    _rule(
        "",
        CatalogFault,
        _UNREACHABLE,
        r"(?i)connect to (hive )?meta ?store|(?<!parquet\.)org\.apache\.thrift\.transport\.",
    ),
    _rule(
        "",
        PreconditionFailed,
        "{what} cannot be read: one of its files is damaged; restore it, or drop what needs it",
        r"(?i)is not a Parquet file|parquet magic bytes|could not read footer|corrupt|not an? "
        r"avro (data )?file|Thrift|can not read class org\.apache\.parquet\.",
    ),
    _rule(
        "OutOfMemoryError SparkOutOfMemoryError MemoryError",
        LimitExceeded,
        "{what}: Spark has not enough memory for this: ask for less at once, or give Spark more "
        "memory",
    ),
    _rule(
        "StackOverflowError",
        LimitExceeded,
        "{what}: it is too long, or nested too deeply, for Spark: write it in smaller parts",
    ),
    _rule("NumberFormatException", BadRequest, "{what}: a number is needed: {detail}"),
    _rule(
        "", LimitExceeded, "{what}: the result is too large for Spark's driver", r"maxResultSize"
    ),
    _rule(
        "ExecutorLostFailure",
        CatalogFault,
        "{what}: a Spark executor died, and so did its replacements: try again, or give executors "
        "more memory",
    ),
    _rule(
        "",
        CatalogFault,
        "{what}: Spark lost its executors: try again later",
        r"(?i)executor (lost|heartbeat timed out)|all masters are unresponsive|worker "
        r"lost|disassociated",
    ),
    _rule(
        "ConnectException UnknownHostException SocketTimeoutException NoRouteToHostException "
        "ServiceUnavailableException"
        " ServiceFailureException RESTException HttpHostConnectException TTransportException",
        CatalogFault,
        _UNREACHABLE,
    ),
    _rule(
        "IllegalArgumentException",
        NotFound,
        "{what}: {detail}",
        r"(?i)cannot find (a )?(snapshot|branch|tag|ref)",
    ),
    _rule("UnsupportedOperationException", Unsupported, "{what}: {detail}"),
    _rule(
        "IllegalArgumentException ValidationException ParseException",
        BadRequest,
        "{what}: {detail}",
    ),
    _rule("AnalysisException ExtendedAnalysisException", BadRequest, "{what}: {detail}"),
    # Errors that Sparkport's own code raised on Spark's workers keep their message.
    *(
        _rule(name, getattr(errors, name), "{detail}")
        for name in errors.__all__
        if name != "SparkportError"
    ),
    _rule("OSError", PreconditionFailed, "{what} cannot be read: {detail}"),
)
