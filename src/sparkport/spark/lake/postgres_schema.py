"""Make a catalog in PostgreSQL usable, before Spark starts: its connection and its tables.

Iceberg in the JVM would make the tables by itself, but its errors are long, and come late.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import psycopg

from sparkport.errors import PreconditionFailed
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.jvm.session.warehouse import CATALOG_TABLES, FIRST_COLUMNS, TYPE_COLUMN
from sparkport.spark.lake.postgres_address import PREFIX, PostgresAddress
from sparkport.spark.lake.postgres_errors import at_start
from sparkport.spark.lake.postgres_pool import ConnectionPool, PostgresConnection

__all__ = ["lacks_tables", "prepared"]

_log = logging.getLogger(__name__)

_OLDEST = 11
"""The first version of PostgreSQL with 64-bit hashes of texts."""
_LOCK = 0x5350_4943
"""Held by whoever makes the tables: of two servers that start at once, one would fail."""
_COLUMNS = (
    "SELECT attname FROM pg_attribute"
    " WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped"
)
_FOR_JAVA = {
    "jdbc.ApplicationName": "sparkport",
    "jdbc.socketTimeout": "60",
    "jdbc.tcpKeepAlive": "true",
    # Connections that ended with the server are made anew.
    "retryable_status_codes": "57P01,57P02,57P03",
}
"""Settings of Iceberg's catalog and of its driver, unless the user has others."""


def prepared(source: LakeSource, lake: str, spark_catalog: str) -> LakeSource:
    """Make what is missing, and complete a source with what Java would not find by itself.

    Raises: BadRequest, PreconditionFailed; they say what to set.
    """
    with _connected(source, lake) as connection:
        if _missing(connection, lake, source.options):
            _make_tables(connection, lake, source.options)
        _look(connection, lake, spark_catalog)
        return _for_java(source, connection.info)


def lacks_tables(source: LakeSource, lake: str) -> bool:
    """Whether `prepared` would have to make something. Raises: as `prepared`."""
    with _connected(source, lake) as connection:
        missing = _missing(connection, lake, source.options)
        create = "SELECT has_schema_privilege(current_schema(), 'CREATE')"
        if missing and missing != (_UPDATE,) and connection.ask(create).fetchone() != (True,):
            raise _not_allowed(connection, lake, missing)
        return bool(missing)


@contextmanager
def _connected(source: LakeSource, lake: str) -> Iterator[PostgresConnection]:
    address = PostgresAddress.of(source.uri, source.options)
    pool = ConnectionPool(address)
    try:
        with pool.asked("SELECT 1") as (connection, _):
            if connection.info.server_version < _OLDEST * 10_000:
                raise PreconditionFailed(
                    f"the catalog of lake {lake} needs PostgreSQL {_OLDEST} or newer: upgrade it"
                )
            yield connection
    except psycopg.Error as error:
        raise at_start(lake, address, error) from error
    finally:
        pool.close()


def _make_tables(connection: PostgresConnection, lake: str, options: Mapping[str, str]) -> None:
    missing: tuple[str, ...] = ()
    try:
        with connection.transaction():
            connection.ask(f"SELECT pg_advisory_xact_lock({_LOCK})")
            missing = _missing(connection, lake, options)
            for statement in missing:
                connection.ask(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _not_allowed(connection, lake, missing) from error


def _not_allowed(
    connection: PostgresConnection, lake: str, missing: tuple[str, ...]
) -> PreconditionFailed:
    user = connection.info.user
    remedy = (
        f"have the owner of iceberg_tables run {_UPDATE}"
        if missing == (_UPDATE,)
        else f"GRANT CREATE on its schema to {user}, or have the owner start Sparkport once"
    )
    return PreconditionFailed(
        f"the catalog of lake {lake} lacks tables or columns of Iceberg, and user {user} may not "
        f"make them: {remedy}"
    )


_FORBIDDING = {"jdbc.init-catalog-tables": "false", "jdbc.schema-version": "V0"}
"""Settings of Iceberg with which it makes no tables, or leaves those of its first version."""
_UPDATE = f"ALTER TABLE iceberg_tables ADD COLUMN IF NOT EXISTS {TYPE_COLUMN} VARCHAR(5)"
"""As Iceberg does it, for tables of its first version."""


def _missing(
    connection: PostgresConnection, lake: str, options: Mapping[str, str]
) -> tuple[str, ...]:
    """The statements that make what is missing.

    Raises: PreconditionFailed for other tables, or where the user does not want them changed.
    """
    columns = {name for (name,) in connection.ask(_COLUMNS, ("iceberg_tables",))}
    properties = connection.ask(_COLUMNS, ("iceberg_namespace_properties",)).fetchone()
    if columns and not columns >= FIRST_COLUMNS:
        raise PreconditionFailed(
            f"the catalog of lake {lake} has a table iceberg_tables that is not Iceberg's: name "
            "another database, or another currentSchema, in catalog_uri"
        )
    if columns and properties is not None and TYPE_COLUMN in columns:
        return ()
    for option, value in _FORBIDDING.items():
        if options.get(option) == value:
            raise PreconditionFailed(
                f"the catalog of lake {lake} lacks tables or columns of Iceberg, and {option} "
                f"forbids to make them: leave it out, or have the owner make them"
            )
    return (_UPDATE,) if columns and properties is not None else (*CATALOG_TABLES, _UPDATE)


def _look(connection: PostgresConnection, lake: str, spark_catalog: str) -> None:
    """Read both tables once. Raises: psycopg.Error when that is not allowed."""
    names = connection.ask(
        "SELECT catalog_name FROM iceberg_tables"
        " UNION SELECT catalog_name FROM iceberg_namespace_properties ORDER BY 1"
    ).fetchall()
    if names and (spark_catalog,) not in names:
        _log.warning(
            "lake %s is empty: its catalog has tables of %s, and none of %s; set spark_catalog to "
            "see them",
            lake,
            ", ".join(name for (name,) in names),
            spark_catalog,
        )


def _for_java(source: LakeSource, found: psycopg.ConnectionInfo) -> LakeSource:
    """With the user and the password that were found elsewhere: Java looks in fewer places."""
    options = {**_FOR_JAVA, "jdbc.user": found.user}
    if found.password:
        options["jdbc.password"] = found.password
    uri = source.uri
    if not uri.startswith(f"{PREFIX}//") or uri.startswith(f"{PREFIX}///"):
        settings = uri.partition("?")[2]
        uri = f"{PREFIX}//{found.host}:{found.port}/{found.dbname}"
        uri += f"?{settings}" if settings else ""
    return replace(source, uri=uri, options={**options, **source.options})
