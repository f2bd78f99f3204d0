"""Errors of PostgreSQL, for the person who typed the SQL and for the one who starts the server.

Texts of PostgreSQL are never passed on: they name hosts, users and rows. A statement's error has a
code (SQLSTATE). An error while connecting has none, so it is recognised by its words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

import psycopg

from sparkport.errors import (
    BadRequest,
    CatalogFault,
    Conflict,
    LimitExceeded,
    PermissionDenied,
    PreconditionFailed,
    SparkportError,
)
from sparkport.spark.lake.postgres_address import PostgresAddress

__all__ = ["at_start", "while_running"]


@dataclass(frozen=True, slots=True)
class _Problem:
    """What an error means."""

    codes: str
    """Beginnings of codes, as a pattern."""
    words: str
    """A pattern for texts of errors without a code."""
    error: type[SparkportError]
    sentence: str
    """What follows "the catalog of lake X", while the server runs."""
    remedy: str
    """The same, for the one who starts the server."""


_AWAY = "cannot be reached: try again later"
_KEYS = "set jdbc.user and jdbc.password in a secrets_file, PGUSER and PGPASSWORD, or ~/.pgpass"
_PROBLEMS = (
    _Problem(
        "28P01",
        r"password authentication failed|authentication failed for user",
        CatalogFault,
        "does not accept the server's password: ask the administrator to correct it",
        "does not accept the password of user {user}: " + _KEYS,
    ),
    _Problem(
        "",
        r"no password supplied",
        CatalogFault,
        "wants a password: ask the administrator to set it",
        "wants a password of user {user}: " + _KEYS,
    ),
    _Problem(
        "28",
        r'role "?.*"? does not exist|no pg_hba\.conf entry|not permitted to log in',
        CatalogFault,
        "does not let the server in: ask the administrator",
        "does not let user {user} in from this machine: correct jdbc.user, or let that user in "
        "(pg_hba.conf)",
    ),
    _Problem(
        "3D000",
        r'database ".*" does not exist',
        CatalogFault,
        "is gone: its database does not exist any more",
        "has no database {database} at {place}: make it, or correct catalog_uri",
    ),
    _Problem(
        "42501",
        r"permission denied for database",
        PermissionDenied,
        "does not let the server do this: ask the administrator for permission",
        "does not let user {user} use its tables: GRANT USAGE on the schema, and SELECT, INSERT, "
        "UPDATE, DELETE ON iceberg_tables, iceberg_namespace_properties TO {user}",
    ),
    _Problem(
        "",
        r"(?i)\bSSL\b|certificate|TLS",
        CatalogFault,
        "cannot be reached safely: ask the administrator to look at its certificate",
        "does not agree with this machine on encryption: correct sslmode and sslrootcert in "
        "catalog_uri, or the server's certificate",
    ),
    _Problem(
        "",
        r"(?i)could not translate host name|name or service not known|failed to resolve host",
        CatalogFault,
        _AWAY,
        "is at a host that is not known ({place}): correct catalog_uri",
    ),
    _Problem(
        "53[34]|57P03",
        r"too many (clients|connections)|remaining connection slots|starting up|shutting down|"
        r"in recovery",
        CatalogFault,
        "takes no more connections now: try again later",
        "at {place} takes no more connections now: wait, or raise its max_connections",
    ),
    _Problem(
        "53",
        r"No space left",
        LimitExceeded,
        "has no room left: ask the administrator for room",
        "at {place} has no room left: make room",
    ),
    _Problem(
        "25006",
        r"session is (read-only|not)|not (in )?hot standby",
        PreconditionFailed,
        "is read-only: ask the administrator where changes are to be made",
        "at {place} is read-only: name the primary server in catalog_uri",
    ),
    _Problem(
        "40|55P03|57014",
        r"(?!)",
        Conflict,
        "is busy with other changes; nothing was changed: try again",
        "at {place} is busy with other changes: try again",
    ),
    _Problem(
        "22001",
        r"(?!)",
        BadRequest,
        "takes names of at most 255 characters, and comments and locations of at most 1000: "
        "shorten them",
        "takes names of at most 255 characters: shorten that of the lake",
    ),
    _Problem(
        "22021|22P05",
        r"NUL \(0x00\)",
        BadRequest,
        "cannot keep this name or comment: leave out characters that it does not know",
        "cannot keep this name: choose another",
    ),
    _Problem(
        "42703",
        r"(?!)",
        CatalogFault,
        "is of Iceberg's first version: set jdbc.schema-version to V1, and start again",
        "is of Iceberg's first version: set jdbc.schema-version to V1",
    ),
    _Problem(
        "42P01|3F000",
        r"(?!)",
        CatalogFault,
        "has lost Iceberg's tables: ask the administrator to restore them",
        "has no tables of Iceberg in the schema that user {user} looks into: correct currentSchema "
        "in catalog_uri",
    ),
)
_LOST = _Problem(
    "08|57P0[12]|57P05",
    r"",
    CatalogFault,
    _AWAY,
    "cannot be reached at {place}: correct catalog_uri, and see that PostgreSQL runs there and "
    "lets this machine connect",
)


def while_running(lake: str, error: psycopg.Error) -> SparkportError:
    """The error to raise for one of PostgreSQL."""
    problem = _problem(error)
    if problem is None:
        return CatalogFault(
            f"the catalog of lake {lake} has failed (code {error.sqlstate}): ask the administrator "
            "to look into the server's log"
        )
    return problem.error(f"the catalog of lake {lake} {problem.sentence}")


def at_start(lake: str, address: PostgresAddress, error: psycopg.Error) -> SparkportError:
    """The error to raise when the server starts: it says what to set."""
    problem = _problem(error)
    if problem is None:
        return PreconditionFailed(
            f"the catalog of lake {lake} has failed (code {error.sqlstate}): look into the log of "
            "PostgreSQL"
        )
    remedy = problem.remedy.format(**_shown(address.parameters))
    return PreconditionFailed(f"the catalog of lake {lake} {remedy}")


def _problem(error: psycopg.Error) -> _Problem | None:
    for problem in _PROBLEMS:
        if error.sqlstate is None:
            if re.search(problem.words, str(error)):
                return problem
        elif problem.codes and re.match(problem.codes, error.sqlstate):
            return problem
    is_lost = (
        isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if error.sqlstate is None
        else re.match(_LOST.codes, error.sqlstate)
    )
    return _LOST if is_lost else None


def _shown(parameters: Mapping[str, str]) -> dict[str, str]:
    """What the settings are, or what the library takes instead."""

    def setting(name: str, variable: str) -> str:
        return parameters.get(name) or os.environ.get(variable, "")

    hosts, ports = setting("host", "PGHOST").split(","), setting("port", "PGPORT").split(",")
    places = [f"{host}:{port}" if port else host for host, port in zip_longest(hosts, ports)]
    user = setting("user", "PGUSER") or "of this process"
    return {
        "user": user,
        "database": setting("dbname", "PGDATABASE") or user,
        "place": ", ".join(filter(None, places)) or "its usual place",
    }
