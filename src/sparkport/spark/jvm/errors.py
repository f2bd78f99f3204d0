"""Spark's, Iceberg's and Arrow's errors in the words of the person who typed the SQL.

Strategy: an error of the JVM is a chain of causes, each with a Java class, a message, and, where
Spark has named it, a condition such as UNRESOLVED_COLUMN. The tables below are asked about all
links of the chain, first for what Spark has named, which it tells better than we could, then for
what Iceberg, Hadoop or Arrow threw, which is told in a sentence of ours. Nothing goes out but
through `scrubbed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

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
from sparkport.spark.jvm.error_texts import first_sentence, scrubbed

__all__ = ["scrubbed", "translate", "translated"]

_DEEPEST = 12
"""Causes of causes that are looked at; Java lets a chain be a circle."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise what Spark raises as a SparkportError; `what` names the object, such as "table a.t", or
    the function.
    """
    try:
        yield
    except SparkportError:
        raise
    except Exception as error:
        better = translate(error, what)
        if better is error:
            raise
        raise better from error


def translate(error: Exception, what: str) -> Exception:
    """The error to raise instead; the same one where it is neither Spark's nor Iceberg's nor
    Arrow's.
    """
    if isinstance(error, SparkportError):
        return error
    links = list(_links(error))
    for link in links:
        if link.condition and not link.condition.startswith(_INDIRECT):
            return _of_condition(link, what)
    for rule in _RULES:
        for link in links:
            if rule.fits(link):
                return rule.error(
                    rule.sentence.format(what=what, detail=first_sentence(link.message))
                )
    if links and links[0].is_java:
        # The innermost cause knows best what happened.
        detail = next(
            (text for link in reversed(links) if (text := first_sentence(link.message))),
            links[-1].name,
        )
        return CatalogFault(f"{what}: Spark failed: {detail}")
    return error


@dataclass(frozen=True, slots=True)
class _Link:
    """One error of a chain of causes."""

    name: str
    """The class, without its package."""
    message: str
    condition: str = ""
    """What Spark calls it."""
    state: str = ""
    """Its SQLSTATE."""
    subject: str = ""
    """The object that Spark misses."""
    is_java: bool = False


@dataclass(frozen=True, slots=True)
class _Rule:
    """What is said about errors of some classes, or with some words in their message."""

    names: frozenset[str]
    words: re.Pattern[str] | None
    error: type[SparkportError]
    sentence: str

    def fits(self, link: _Link) -> bool:
        if self.names and link.name not in self.names:
            return False
        return self.words is None or self.words.search(link.message) is not None


def _links(error: BaseException) -> Iterator[_Link]:
    """The chain of causes, the outermost first; first those of Java, where there are some."""
    yield from _java_links(
        getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    )
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None:
            return
        name = _python_name(cause)
        if name == "PythonException":
            yield from _failed_tasks(str(getattr(cause, "_desc", "")))
        elif name and name != "Py4JJavaError":  # whose Java is seen already
            yield _Link(name, str(getattr(cause, "_desc", None) or cause))
        cause = cause.__cause__


def _java_links(exception: Any) -> Iterator[_Link]:
    try:
        for _ in range(_DEEPEST):
            if exception is None:
                return
            name = str(exception.getClass().getName()).rpartition(".")[2]
            message = str(exception.getMessage() or "")
            failed = list(_failed_tasks(message))
            yield from failed or (_Link(name, message, *_condition(exception), is_java=True),)
            exception = exception.getCause()
    except Exception:  # noqa: BLE001 - the JVM may have gone meanwhile
        yield _Link("Py4JNetworkError", "")


def _failed_tasks(message: str) -> Iterator[_Link]:
    """What a failed job says of its last task; for some errors that is the only trace of them."""
    if "ExecutorLostFailure" in message:
        yield _Link("ExecutorLostFailure", "", is_java=True)
    elif _TRACEBACK in message:
        last = message.partition("\n\tat ")[0].strip().rpartition("\n")[2]
        name, _, text = last.partition(": ")
        yield _Link(
            name.rpartition(".")[2], text if name.startswith("sparkport.") else last, is_java=True
        )


_TRACEBACK = "Traceback (most recent call last)"


def _condition(exception: Any) -> tuple[str, str, str]:
    """Condition, SQLSTATE and missing object; only Spark's own exceptions have them."""
    try:
        condition = str(exception.getCondition() or "")
        parameters = dict(exception.getMessageParameters() or {})
    except Exception:  # noqa: BLE001 - py4j has no cheaper way to tell that there is no such method
        return "", "", ""
    subject = parameters.get("relationName") or parameters.get("schemaName") or ""
    return condition, str(exception.getSqlState() or ""), str(subject).replace("`", "")


def _python_name(error: BaseException) -> str:
    module = type(error).__module__.partition(".")[0]
    if isinstance(error, MemoryError):
        return "MemoryError"
    # Anything else is an error of the program, and not for the rules below.
    known = module in ("pyspark", "pyiceberg", "py4j") or isinstance(
        error, OSError | pa.ArrowException
    )
    return type(error).__name__ if known else ""


# ---------------------------------------------------------------------------- what Spark has named


def _of_condition(link: _Link, what: str) -> SparkportError:
    sentence = first_sentence(link.message)
    kind, _, name = what.partition(" ")
    is_object = kind in ("table", "view", "schema") and bool(name)
    for condition, error in _CONDITIONS.items():
        if link.condition == condition or link.condition.startswith(f"{condition}."):
            if not is_object:
                return error(f"{what}: {sentence}")
            return _of_object(link, error, what, sentence)
    for state, error in _STATES.items():
        if link.state.startswith(state):
            return error(f"{what}: {sentence}")
    return PreconditionFailed(f"{what}: {sentence}")


def _of_object(
    link: _Link, error: type[SparkportError], what: str, sentence: str
) -> SparkportError:
    """Spark misses the object itself, or something that the object, a view for instance, is made
    of.
    """
    name = what.partition(" ")[2]
    is_itself = (
        not link.subject
        or f".{name}".endswith(f".{link.subject}")
        or f".{link.subject}".endswith(f".{name}")
    )
    if error is NotFound and is_itself and link.subject:
        return NotFound(f"{what} does not exist")
    if error is NotFound:
        return PreconditionFailed(f"{what} can no longer be resolved: {sentence}")
    if error is AlreadyExists and is_itself and link.subject:
        return AlreadyExists(f"{what} exists already")
    return error(f"{what}: {sentence}")


_INDIRECT = (
    "_LEGACY_ERROR_TEMP_2250",
    "INTERNAL_ERROR",
    "FAILED_EXECUTE_UDF",
    "FAILED_READ_FILE",
    "TASK_WRITE_FAILED",
)
"""Conditions that only say that something else has failed, which is told further down the chain."""

_CONDITIONS: dict[str, type[SparkportError]] = {
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
}

_STATES: dict[str, type[SparkportError]] = {
    "0A": Unsupported,
    "42501": PermissionDenied,
    "21": BadRequest,
    "22": BadRequest,
    "38": BadRequest,
    "39": BadRequest,
    "42": BadRequest,
    "P0": BadRequest,
    "53": LimitExceeded,
    "XX": CatalogFault,
}
"""By how the SQLSTATE begins."""


# ------------------------------------------------------------------------------- what others threw


def _rule(names: str, error: type[SparkportError], sentence: str, words: str = "") -> _Rule:
    return _Rule(frozenset(names.split()), re.compile(words) if words else None, error, sentence)


_GONE = "Spark is gone, its process has ended: ask the administrator to restart the server"

_RULES: Sequence[_Rule] = (
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
        "{what}: it is not known whether the change was made: look at the table before you try again",
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
        "SQLITE_BUSY|SQLITE_LOCKED",
    ),
    _rule(
        "",
        LimitExceeded,
        "{what}: the storage is full: ask the administrator for room",
        "No space left on device|Disk quota exceeded|File too large|SQLITE_FULL",
    ),
    _rule(
        "",
        PreconditionFailed,
        "{what}: the lake's catalog is read-only for Spark",
        "SQLITE_READONLY|SQLITE_PERM",
    ),
    _rule(
        "",
        CatalogFault,
        "{what}: the lake's catalog cannot be read: its database is damaged, restore it from a backup",
        "SQLITE_CORRUPT|SQLITE_NOTADB|SQLITE_CANTOPEN|SQLITE_IOERR",
    ),
    _rule(
        "AccessControlException AccessDeniedException NotAuthorizedException ForbiddenException PermissionError",
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
        "{what} cannot be read: one of its files is damaged; restore it, or drop what needs it",
        r"(?i)is not a Parquet file|parquet magic bytes|could not read footer|corrupt|not an? avro (data )?file|Thrift",
    ),
    _rule(
        "OutOfMemoryError SparkOutOfMemoryError MemoryError",
        LimitExceeded,
        "{what}: Spark has not enough memory for this: ask for less at once, or give Spark more memory",
    ),
    _rule(
        "", LimitExceeded, "{what}: the result is too large for Spark's driver", r"maxResultSize"
    ),
    _rule(
        "ExecutorLostFailure",
        CatalogFault,
        "{what}: a Spark executor died, and so did its replacements: try again, or give executors more memory",
    ),
    _rule(
        "",
        CatalogFault,
        "{what}: Spark lost its executors: try again later",
        r"(?i)executor (lost|heartbeat timed out)|all masters are unresponsive|worker lost|disassociated",
    ),
    _rule(
        "ConnectException UnknownHostException SocketTimeoutException NoRouteToHostException ServiceUnavailableException"
        " ServiceFailureException RESTException HttpHostConnectException",
        CatalogFault,
        "{what}: its catalog or its storage cannot be reached: try again later",
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
    # What Sparkport's own code on Spark's workers has raised is meant as it is.
    *(
        _rule(name, getattr(errors, name), "{detail}")
        for name in errors.__all__
        if name != "SparkportError"
    ),
    _rule("OSError", PreconditionFailed, "{what} cannot be read: {detail}"),
)
