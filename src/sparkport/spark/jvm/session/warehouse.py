"""The folder of an embedded lake, and its catalog, Iceberg's SQLite file `catalog.db`.

It is checked before Spark starts, which takes seconds and fails with a Java stack trace. Several
programs may use one warehouse at once: SQLite lets them commit one after the other.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparkport.errors import BadRequest, PreconditionFailed

__all__ = [
    "BUSY_SECONDS",
    "CATALOG_TABLES",
    "DATABASE",
    "FIRST_COLUMNS",
    "TYPE_COLUMN",
    "Warehouse",
    "open_warehouse",
]

DATABASE = "catalog.db"
"""Iceberg's catalog in the folder of a warehouse."""

BUSY_SECONDS = 60.0
"""How long to wait for a catalog that another process writes to.

A commit takes some milliseconds, but machines may stall.
"""
_BUSY_SECONDS_AT_START = 20.0
"""How long to wait for a locked catalog when a server starts, where a user looks on."""
_LAYOUT = 0
"""SQLite's user_version of the catalogs that we know. Iceberg and PyIceberg do not use it."""
FIRST_COLUMNS = {
    "catalog_name",
    "table_namespace",
    "table_name",
    "metadata_location",
    "previous_metadata_location",
}
"""Columns of `iceberg_tables` in its first version."""
CATALOG_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS iceberg_tables (
        catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL,
        table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000),
        previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
        PRIMARY KEY (catalog_name, table_namespace, table_name)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
        catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL,
        property_key VARCHAR(255), property_value VARCHAR(1000),
        PRIMARY KEY (catalog_name, namespace, property_key)
    )
    """,
)
"""Statements that make a catalog as Iceberg's JDBC catalog would, for any database."""
TYPE_COLUMN = "iceberg_type"
"""The column that the second version of `iceberg_tables` adds, for views."""
_FORBIDDEN = "?#%"


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A warehouse that was found to be usable."""

    path: Path
    stored_names: tuple[str, ...]
    """The names of the catalogs that have tables or namespaces in it."""

    def catalog_name(self, wanted: str) -> str:
        """The name that Spark's catalog must have to find the stored tables.

        Every row of `catalog.db` holds the catalog's name.
        """
        return (
            wanted if not self.stored_names or wanted in self.stored_names else self.stored_names[0]
        )

    @property
    def location(self) -> str:
        """The location for Iceberg: not percent-encoded, and with the scheme `file`."""
        return f"file://{self.path}"

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's Iceberg catalog on this warehouse."""
        return {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.path / DATABASE}",
            "warehouse": self.location,
            "jdbc.schema-version": "V1",  # the first version with views
            "jdbc.busy_timeout": str(round(BUSY_SECONDS * 1000)),
            "cache-enabled": "false",  # other engines commit, too
        }

    def make_catalog(self) -> None:
        """Make the catalog's tables, or bring them up to date.

        Iceberg would do it by itself, but looks first and then changes: of two servers that start
        at once, one would fail.

        Raises: PreconditionFailed.
        """
        catalog = self.path / DATABASE
        with _plain_errors(catalog), closing(_connect(catalog, "rwc")) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in CATALOG_TABLES:
                connection.execute(statement)
            if TYPE_COLUMN not in _columns(connection):
                connection.execute(
                    f"ALTER TABLE iceberg_tables ADD COLUMN {TYPE_COLUMN} VARCHAR(5)"
                )
            connection.execute("COMMIT")


def open_warehouse(folder: Path) -> Warehouse:
    """Make the folder where it is missing, and check that it can be used.

    Raises: BadRequest for a path that can never be a warehouse; PreconditionFailed for a folder
    that cannot be used as it is.
    """
    path = folder.expanduser().absolute()
    if any(sign in str(path) for sign in _FORBIDDEN) or not str(path).isprintable():
        raise BadRequest(
            f"the warehouse {str(path)!r} has one of {' '.join(_FORBIDDEN)} in its path: name "
            "another folder"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(
            dir=path
        ):  # os.access is wrong for root, and on read-only disks
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise BadRequest(f"the warehouse {path} is not a folder: name another one") from error
    except OSError as error:
        raise PreconditionFailed(
            f"the warehouse {path} cannot be written to ({error.strerror}): change its "
            "permissions, or name another folder"
        ) from error
    catalog = path / DATABASE
    return Warehouse(path, _stored_names(catalog) if catalog.exists() else ())


def _stored_names(catalog: Path) -> tuple[str, ...]:
    """The names of the catalogs in the file, which is checked on the way."""
    with _plain_errors(catalog), closing(_connect(catalog)) as connection:
        connection.execute(
            "BEGIN IMMEDIATE"
        )  # begins as a commit does: fails where the file cannot be written to
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if layout > _LAYOUT:
            raise PreconditionFailed(
                f"the catalog {catalog} was made by a newer Sparkport: install that one"
            )
        (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise sqlite3.DatabaseError(state)
        columns = _columns(connection)
        if not columns:
            return ()
        if not columns >= FIRST_COLUMNS:
            raise PreconditionFailed(
                f"the catalog {catalog} is not one of Iceberg: move it away, or name another folder"
            )
        names = "SELECT catalog_name FROM iceberg_tables"
        if (
            connection.execute("PRAGMA table_info(iceberg_namespace_properties)").fetchone()
            is not None
        ):
            names += " UNION SELECT catalog_name FROM iceberg_namespace_properties"
        return tuple(
            name
            for (name,) in connection.execute(
                f"SELECT DISTINCT catalog_name FROM ({names}) ORDER BY 1"
            )
        )


def _columns(connection: sqlite3.Connection) -> set[str]:
    """The columns of `iceberg_tables`; none where there is no such table."""
    return {name for _, name, *_ in connection.execute("PRAGMA table_info(iceberg_tables)")}


def _connect(catalog: Path, mode: str = "rw") -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{catalog}?mode={mode}",
        uri=True,
        timeout=_BUSY_SECONDS_AT_START,
        isolation_level=None,
    )


@contextmanager
def _plain_errors(catalog: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        said = str(error)
        if "locked" in said:
            problem = "is locked by another program: end that one, or wait for it"
        elif "readonly" in said or "unable to open" in said:
            problem = (
                f"cannot be written to ({said}): "
                "change the permissions of the file and of its folder"
            )
        else:
            problem = (
                f"is damaged, or no SQLite file ({said}): "
                "restore it from a backup, or name another folder"
            )
        raise PreconditionFailed(f"the catalog {catalog} {problem}") from error
