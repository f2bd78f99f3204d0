"""Errors of Spark, Iceberg, SQLite and Arrow in the words of the person who typed the SQL.

Strategy: an error of the JVM is a chain of causes, each with a Java class, a message, and, where
Spark has named it, a condition such as UNRESOLVED_COLUMN. The rules of `error_rules` are tried on
all links of the chain. Conditions that Spark has named come first, because its message is better
than ours. Then come errors of Iceberg, Hadoop, SQLite or Arrow, which get a sentence of ours. Every
text that leaves the server passes through `scrubbed`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sparkport.errors import (
    AlreadyExists,
    CatalogFault,
    NotFound,
    PreconditionFailed,
    SparkportError,
)
from sparkport.spark.jvm.error_rules import CONDITIONS, INDIRECT, RULES, STATES, Link
from sparkport.spark.jvm.error_texts import first_sentence, scrubbed

__all__ = ["links_of", "scrubbed", "translate", "translated"]

_DEEPEST = 12
"""How many causes are looked at; in Java a chain may be a circle."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise Spark's errors as SparkportErrors; `what` names the object or function in messages.

    An example is "table a.t".
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
    """The error to raise instead; the same error where it is not Spark's, Iceberg's or Arrow's."""
    if isinstance(error, SparkportError):
        return error
    links = list(links_of(error))
    for link in links:
        if link.condition and not link.condition.startswith(INDIRECT):
            return _of_condition(link, what)
    for rule in RULES:
        for link in links:
            if rule.fits(link):
                return rule.error(
                    rule.sentence.format(what=what, detail=first_sentence(link.message))
                )
    if links and links[0].is_java:
        # The innermost cause tells best what happened.
        detail = next(
            (text for link in reversed(links) if (text := first_sentence(link.message))),
            links[-1].name,
        )
        return CatalogFault(f"{what}: Spark failed: {detail}")
    return error


def links_of(error: BaseException) -> Iterator[Link]:
    """The chain of causes, the outermost first; Java's causes come before Python's."""
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
        elif name and name != "Py4JJavaError":  # its Java error has been seen already
            yield Link(name, str(getattr(cause, "_desc", None) or cause))
        cause = cause.__cause__


def _java_links(exception: Any) -> Iterator[Link]:
    try:
        for _ in range(_DEEPEST):
            if exception is None:
                return
            name = str(exception.getClass().getName()).rpartition(".")[2]
            message = str(exception.getMessage() or "")
            failed = list(_failed_tasks(message))
            yield from failed or (Link(name, message, *_condition(exception), is_java=True),)
            exception = exception.getCause()
    except Exception:  # noqa: BLE001 - the JVM may have gone meanwhile
        yield Link("Py4JNetworkError", "")


def _failed_tasks(message: str) -> Iterator[Link]:
    """What a failed job says about its last task: the only trace that some errors leave."""
    if "ExecutorLostFailure" in message:
        yield Link("ExecutorLostFailure", "", is_java=True)
    elif _TRACEBACK in message:
        last = message.partition("\n\tat ")[0].strip().rpartition("\n")[2]
        name, _, text = last.partition(": ")
        yield Link(
            name.rpartition(".")[2], text if name.startswith("sparkport.") else last, is_java=True
        )


_TRACEBACK = "Traceback (most recent call last)"


def _condition(exception: Any) -> tuple[str, str, str]:
    """Condition, SQLSTATE and missing object. Only Spark's own exceptions have them."""
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
    # Everything else is an error of the program, and not for these rules.
    known = module in ("pyspark", "pyiceberg", "py4j") or isinstance(
        error, OSError | pa.ArrowException | sqlite3.Error
    )
    return type(error).__name__ if known else ""


# ---------------------------------------------------------------------------- what Spark has named


def _of_condition(link: Link, what: str) -> SparkportError:
    sentence = first_sentence(link.message)
    kind, _, name = what.partition(" ")
    is_object = kind in ("table", "view", "schema") and bool(name)
    for condition, error in CONDITIONS.items():
        if link.condition == condition or link.condition.startswith(f"{condition}."):
            if not is_object:
                return error(f"{what}: {sentence}")
            return _of_object(link, error, what, sentence)
    for state, error in STATES.items():
        if link.state.startswith(state):
            return error(f"{what}: {sentence}")
    return PreconditionFailed(f"{what}: {sentence}")


def _of_object(link: Link, error: type[SparkportError], what: str, sentence: str) -> SparkportError:
    """The error for a missing object: the one asked for, or one that a view is made of."""
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
