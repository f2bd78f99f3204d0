"""Random DDL and DML in the client simulation and in DuckDB, compared after every step.

A step compares the columns of all tables, and the rows of those that it named; the end compares all
rows.

The settings profile: examples are derandomised, so that every run makes the same ones, and a
failing one is shown as it is, since making it smaller takes many minutes.
`SPARKPORT_MODEL_EXAMPLES=2000 pytest tests/client/test_model.py` looks longer, at other ones each
time, and makes what it finds smaller.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sparkport.memory import MemoryCatalog, MemorySettings
from sparkport.server import Server
from sparkport.testing import Changed, ClientSideError, DuckDBClient, ServerError

EXAMPLES = int(os.environ.get("SPARKPORT_MODEL_EXAMPLES", "0"))
PROFILE = settings(
    phases=[Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
    stateful_step_count=30,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)

VALUES: Mapping[str, Sequence[str]] = {
    "INTEGER": ["NULL", "-1", "0", "1", "2", "3"],
    "BIGINT": ["NULL", "-1", "0", "1", "2", "9007199254740993"],
    "VARCHAR": ["NULL", "''", "'a'", "'1'", "'it''s'", "'ü'"],
    "DOUBLE": ["NULL", "-1.5", "0.0", "1.0", "2.25"],
    "BOOLEAN": ["NULL", "true", "false"],
    "DATE": ["NULL", "DATE '1970-01-01'", "DATE '2024-02-29'"],
    "DECIMAL(8,2)": ["NULL", "0.00", "1.00", "-12.34"],
    "INTEGER[]": ["NULL", "[]", "[1, NULL]", "[2, 3]"],
    "STRUCT(x INTEGER, y VARCHAR)": ["NULL", "{'x': 1, 'y': 'a'}", "{'x': NULL, 'y': 'b'}"],
}
KINDS = st.sampled_from(list(VALUES))
COLUMNS = ["a", "b", "c", "d"]
SCHEMAS = st.sampled_from(["s1", "s1", "s1", "s2"])
TABLES = st.sampled_from(["t1", "T1", "t2", "t3"])
ONE_IN_EIGHT = st.integers(0, 7).map(lambda number: number == 7)

LIMITS_OF_DUCKDB = re.compile(
    "|".join(
        [
            "an index depends on it",
            "an index depends on a column",
            "Cannot (alter|drop|change).*because there are entries that depend on it",
            "Cannot change the type of a column that has a (CHECK|UNIQUE or PRIMARY KEY) "
            "constraint",
            "Cannot change type of this column",
        ]
    )
)
"""DuckDB's own tables refuse some changes of columns that have an index. Servers need not."""
DELETED_IN_DUCKDB = re.compile(LIMITS_OF_DUCKDB.pattern + "|^Conversion Error")
"""DuckDB's own tables convert rows, too, that have been deleted."""
CASCADE_IN_DUCKDB = re.compile(
    LIMITS_OF_DUCKDB.pattern + "|because (it is referenced in|there is a) .*constraint"
)
"""To DuckDB's own tables CASCADE makes no difference; elsewhere it drops the constraints."""


class Statements(RuleBasedStateMachine):
    """Every rule runs a statement on both sides, which agree on its failure and on all tables."""

    server: Server
    numbers = itertools.count()
    agreed = True
    named: frozenset[tuple[str, str]] = frozenset()
    """The tables that statements since the last comparison were about, in lower case."""

    @initialize(data=st.data(), lossless=st.booleans())
    def attach(self, data: st.DataObject, lossless: bool) -> None:
        self.catalog = f"c{next(self.numbers)}"
        self.server.add_catalog(
            MemoryCatalog(self.catalog, settings=MemorySettings(statistics_rows=0))
        )
        self.client = DuckDBClient(
            self.server.location, self.catalog, arrow_lossless=lossless, timeout=60
        )
        self.duckdb = duckdb.connect()
        self.duckdb.execute(
            f"SET arrow_lossless_conversion = true; ATTACH ':memory:' AS {self.catalog}"
        )
        self.duckdb.execute(f"USE {self.catalog}")
        self.create_schema("s1")
        for name in ("t1", "t2"):
            self.create_table("s1", name, data, if_not_exists=False)
            self._insert("s1", name, data, returning=False)

    def teardown(self) -> None:
        if not hasattr(self, "duckdb"):
            return
        with (
            self.client,
            self.duckdb,
            DuckDBClient(self.server.location, self.catalog, timeout=60) as fresh,
        ):
            if self.agreed:
                everything = frozenset(self._known_tables())
                self._compare(self.client, everything)
                # Another client that attaches sees what this client made of the answers.
                self._compare(fresh, everything)
        self.server.remove_catalog(self.catalog)

    # ------------------------------------------------------------------------------------- schemas

    def create_schema(self, name: str) -> None:
        self._both(f"CREATE SCHEMA IF NOT EXISTS {name}", lambda: self.client.create_schema(name))

    def drop_schema(self, name: str, if_exists: bool) -> None:
        sql = f"DROP SCHEMA {'IF EXISTS ' if if_exists else ''}{name}"
        self._both(sql, lambda: self.client.drop_schema(name, if_exists=if_exists))

    @rule(create=st.booleans(), if_exists=st.booleans(), data=st.data())
    def create_or_drop_schema(self, create: bool, if_exists: bool, data: st.DataObject) -> None:
        if create:
            self.create_schema(data.draw(st.sampled_from(["s1", "s2", "s2"])))
        else:
            self.drop_schema(data.draw(st.sampled_from(["s1", "s2", "S2", "s3"])), if_exists)

    # -------------------------------------------------------------------------------------- tables

    @rule(data=st.data(), kind=st.sampled_from(["create", "create", "create as", "drop", "rename"]))
    def create_drop_or_rename_table(self, data: st.DataObject, kind: str) -> None:
        if kind == "create":
            self.create_table(data.draw(SCHEMAS), data.draw(TABLES), data, data.draw(st.booleans()))
        elif kind == "create as":
            self.create_table_as(data.draw(SCHEMAS), data.draw(TABLES), data)
        elif kind == "drop":
            self.drop_table(data, data.draw(st.booleans()))
        else:
            self.rename_table(data, data.draw(st.sampled_from(["t1", "t2", "t3"])))

    def create_table(
        self, schema: str, name: str, data: st.DataObject, if_not_exists: bool
    ) -> None:
        self._name(schema, name)
        columns = {
            column: data.draw(KINDS, label=column)
            for column in COLUMNS[: data.draw(st.integers(1, 4))]
        }
        options, clauses = data.draw(constraints(columns))
        definitions = ", ".join(
            [*(f"{column} {kind}" for column, kind in columns.items()), *clauses]
        )
        not_null = options.get("not_null", ())
        for column in not_null:
            definitions = definitions.replace(
                f"{column} {columns[column]}", f"{column} {columns[column]} NOT NULL", 1
            )
        condition = "IF NOT EXISTS " if if_not_exists else ""
        sql = f"CREATE TABLE {condition}{schema}.{name} ({definitions})"
        self._both(
            sql,
            lambda: self.client.create_table(
                schema, name, columns, if_not_exists=if_not_exists, **options
            ),
        )

    def create_table_as(self, schema: str, name: str, data: st.DataObject) -> None:
        self._name(schema, name)
        columns = {
            column: data.draw(KINDS, label=column)
            for column in COLUMNS[: data.draw(st.integers(1, 3))]
        }
        select = data.draw(rows_of(columns))
        rows = self._rows(select)
        self._both(
            f"CREATE TABLE {schema}.{name} AS {select}",
            lambda: self.client.create_table_as(schema, name, rows),
        )

    def drop_table(self, data: st.DataObject, if_exists: bool) -> None:
        schema, name = self._table(data)
        if if_exists and schema not in self.client.schemas():
            return  # the simulation refuses the schema, which the real client does not
        sql = f"DROP TABLE {'IF EXISTS ' if if_exists else ''}{schema}.{name}"
        self._both(sql, lambda: self.client.drop_table(schema, name, if_exists=if_exists))

    def rename_table(self, data: st.DataObject, new_name: str) -> None:
        schema, name = self._table(data)
        self._name(schema, new_name)
        if name.lower() != new_name:
            sql = f"ALTER TABLE {schema}.{name} RENAME TO {new_name}"
            self._both(sql, lambda: self.client.rename_table(schema, name, new_name))

    # ------------------------------------------------------------------------------------- columns

    @rule(
        data=st.data(),
        change=st.integers(0, 5),
        flag=st.booleans(),
        other=st.booleans(),
        kind=KINDS,
    )
    def alter_table(
        self, data: st.DataObject, change: int, flag: bool, other: bool, kind: str
    ) -> None:
        changes: list[Callable[[], None]] = [
            lambda: self.add_column(data, data.draw(st.sampled_from([*COLUMNS, "B"])), kind, flag),
            lambda: self.remove_column(data, flag, other),
            lambda: self.rename_column(data, data.draw(st.sampled_from([*COLUMNS, "e"]))),
            lambda: self.set_or_drop_not_null(data, flag),
            lambda: self.set_default(data),
            lambda: self.change_column_type(data, kind),
        ]
        changes[change]()

    def add_column(self, data: st.DataObject, column: str, kind: str, if_not_exists: bool) -> None:
        schema, name = self._table(data)
        self._alter(
            f"ALTER TABLE {schema}.{name} ADD COLUMN "
            f"{'IF NOT EXISTS ' if if_not_exists else ''}{column} {kind}",
            lambda: self.client.add_column(schema, name, column, kind, if_not_exists=if_not_exists),
        )

    def remove_column(self, data: st.DataObject, if_exists: bool, cascade: bool) -> None:
        schema, name, column = self._column(data)
        if not cascade and self._is_checked(schema, name, column):
            return  # DuckDB drops a CHECK of this column alone with it; here that takes CASCADE
        self._alter(
            f"ALTER TABLE {schema}.{name} DROP COLUMN {'IF EXISTS ' if if_exists else ''}{column}"
            + (" CASCADE" if cascade else ""),
            lambda: self.client.remove_column(
                schema, name, column, if_exists=if_exists, cascade=cascade
            ),
            CASCADE_IN_DUCKDB if cascade else LIMITS_OF_DUCKDB,
        )

    def rename_column(self, data: st.DataObject, new_name: str) -> None:
        schema, name, column = self._column(data)
        if column.lower() != new_name:
            self._alter(
                f"ALTER TABLE {schema}.{name} RENAME COLUMN {column} TO {new_name}",
                lambda: self.client.rename_column(schema, name, column, new_name),
            )

    def set_or_drop_not_null(self, data: st.DataObject, forbid: bool) -> None:
        schema, name, column = self._column(data)
        change = self.client.set_not_null if forbid else self.client.drop_not_null
        self._alter(
            f"ALTER TABLE {schema}.{name} ALTER {column} {'SET' if forbid else 'DROP'} NOT NULL",
            lambda: change(schema, name, column),
        )

    def set_default(self, data: st.DataObject) -> None:
        schema, name, column = self._column(data)
        kind = self._columns(schema, name).get(column, "INTEGER")
        expression = data.draw(st.sampled_from(VALUES[kind]), label="default")
        self._alter(
            f"ALTER TABLE {schema}.{name} ALTER {column} SET DEFAULT {expression}",
            lambda: self.client.set_default(schema, name, column, expression),
        )

    def change_column_type(self, data: st.DataObject, kind: str) -> None:
        schema, name, column = self._column(data)
        using = data.draw(
            st.sampled_from([None, None, VALUES[kind][-1], f"CAST({column} AS {kind})"]),
            label="using",
        )
        self._alter(
            f"ALTER TABLE {schema}.{name} ALTER {column} TYPE "
            f"{kind}{f' USING {using}' if using else ''}",
            lambda: self.client.change_column_type(schema, name, column, kind, using),
            DELETED_IN_DUCKDB
            if self._converts(schema, name, using or column, kind)
            else LIMITS_OF_DUCKDB,
        )

    def _converts(self, schema: str, name: str, expression: str, kind: str) -> bool:
        try:
            self.duckdb.execute(
                f"SELECT CAST({expression} AS {kind}) FROM {schema}.{name}"
            ).fetchall()
        except duckdb.Error:
            return False
        return True

    # ---------------------------------------------------------------------------------------- rows

    @rule(data=st.data(), returning=st.booleans())
    def insert(self, data: st.DataObject, returning: bool) -> None:
        schema, name = self._table(data)
        self._insert(schema, name, data, returning)

    def _insert(self, schema: str, name: str, data: st.DataObject, returning: bool) -> None:
        known = self._columns(schema, name) or {"a": "INTEGER"}
        left_out = data.draw(
            st.lists(st.sampled_from(list(known)), max_size=len(known) - 1), label="left out"
        )
        chosen = [column for column in known if column not in left_out]
        select = data.draw(rows_of({column: known[column] for column in chosen}), label="rows")
        rows = self._rows(select)
        self._both(
            f"INSERT INTO {schema}.{name} BY NAME {select}",
            lambda: self.client.insert(schema, name, rows, returning=returning),
            returning,
        )

    @rule(returning=st.booleans(), data=st.data())
    def insert_select(self, returning: bool, data: st.DataObject) -> None:
        schema, name = self._table(data)
        source = self._table(data)
        target, scanned = self._columns(schema, name), self._columns(*source)
        copied = [column for column in target if target[column] == scanned.get(column)]
        if not copied:
            return
        where = data.draw(condition(scanned), label="where")
        self._both(
            f"INSERT INTO {schema}.{name} BY NAME SELECT {', '.join(copied)} FROM "
            f"{'.'.join(source)}{_where(where)}",
            lambda: self.client.insert_select(
                schema,
                name,
                source,
                {column: column for column in copied},
                where=where,
                returning=returning,
            ),
            returning,
        )

    @rule(data=st.data(), returning=st.booleans())
    def update(self, data: st.DataObject, returning: bool) -> None:
        schema, name = self._table(data)
        known = self._columns(schema, name) or {"a": "INTEGER"}
        chosen = data.draw(
            st.lists(st.sampled_from(list(known)), unique=True, min_size=1, max_size=2), label="set"
        )
        assignments = {
            column: data.draw(expression(column, known), label=column) for column in chosen
        }
        where = data.draw(condition(known), label="where")
        setting = ", ".join(f"{column} = {value}" for column, value in assignments.items())
        self._both(
            f"UPDATE {schema}.{name} SET {setting}{_where(where)}",
            lambda: self.client.update(schema, name, assignments, where, returning=returning),
            returning,
        )

    @rule(data=st.data(), returning=st.booleans())
    def delete(self, data: st.DataObject, returning: bool) -> None:
        schema, name = self._table(data)
        where = data.draw(condition(self._columns(schema, name)), label="where")
        self._both(
            f"DELETE FROM {schema}.{name}{_where(where)}",
            lambda: self.client.delete(schema, name, where, returning=returning),
            returning,
        )

    def _table(self, data: st.DataObject) -> tuple[str, str]:
        """Return a table, mostly one that exists."""
        known = sorted(self._known_tables())
        if known and not data.draw(ONE_IN_EIGHT, label="any table"):
            return self._name(*data.draw(st.sampled_from(known), label="table"))
        return self._name(data.draw(SCHEMAS, label="schema"), data.draw(TABLES, label="table"))

    def _name(self, schema: str, name: str) -> tuple[str, str]:
        self.named |= {(schema, name.lower())}
        return schema, name

    def _column(self, data: st.DataObject) -> tuple[str, str, str]:
        """Return a column, mostly one that exists."""
        schema, name = self._table(data)
        known = list(self._columns(schema, name))
        if known and not data.draw(ONE_IN_EIGHT, label="any column"):
            return schema, name, data.draw(st.sampled_from(known), label="column")
        return schema, name, data.draw(st.sampled_from([*COLUMNS, "B"]), label="column")

    # ---------------------------------------------------------------------------------- comparison

    @invariant()
    def tables_are_the_same(self) -> None:
        if hasattr(self, "duckdb"):
            self._compare(self.client, self.named)
            self.named = frozenset()

    def _compare(self, client: DuckDBClient, with_rows: frozenset[tuple[str, str]]) -> None:
        ours = {(s.name, t.name): t for s in client.schemas().values() for t in s.tables.values()}
        due: dict[tuple[str, str], list[tuple[Any, ...]]] = {
            table: [] for table in self._known_tables()
        }
        columns = self.duckdb.execute(
            "SELECT schema_name, table_name, column_name, data_type, is_nullable FROM "
            "duckdb_columns() WHERE database_name = ? ORDER BY column_index",
            [self.catalog],
        )
        for schema, name, *column in columns.fetchall():
            due[schema, name].append(tuple(column))
        shown = {
            name: [(column.name, column.type, column.nullable) for column in table.columns]
            for name, table in ours.items()
        }
        assert shown == due
        for schema, name in ours:
            if (schema, name.lower()) in with_rows or (schema, name) in with_rows:
                rows = self.duckdb.sql(f"FROM {schema}.{name}").to_arrow_table()
                assert _unordered(client.scan(schema, name)) == _unordered(rows), f"{schema}.{name}"

    def _known_tables(self) -> list[tuple[str, str]]:
        sql = "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ?"
        return self.duckdb.execute(sql, [self.catalog]).fetchall()

    def _columns(self, schema: str, name: str) -> dict[str, str]:
        """Return the columns of a table that exists, else nothing."""
        found = self.duckdb.execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = ? AND "
            "schema_name = ? AND lower(table_name) = lower(?) ORDER BY column_index",
            [self.catalog, schema, name],
        )
        return dict(found.fetchall())

    def _is_checked(self, schema: str, name: str, column: str) -> bool:
        found = self.duckdb.execute(
            "SELECT count(*) FROM duckdb_constraints() WHERE database_name = ? AND schema_name = ? "
            "AND lower(table_name) = lower(?) AND constraint_type = 'CHECK' "
            "AND list_contains(constraint_column_names, lower(?))",
            [self.catalog, schema, name, column],
        )
        return found.fetchall() != [(0,)]

    def _rows(self, select: str) -> pa.Table:
        return self.duckdb.sql(select).to_arrow_table()

    def _alter(
        self, sql: str, ours: Callable[[], Any], limits: re.Pattern[str] = LIMITS_OF_DUCKDB
    ) -> None:
        self._both(sql, ours, limits=limits)

    def _both(
        self,
        sql: str,
        ours: Callable[[], Any],
        returning: bool = False,
        limits: re.Pattern[str] | None = None,
    ) -> None:
        """Run a statement on both sides, which agree on its failure and on the changed rows."""
        theirs: Any = None
        failure: str | None = None
        try:
            if returning:
                theirs = self.duckdb.sql(f"{sql} RETURNING *").to_arrow_table()
            else:
                theirs = self.duckdb.execute(sql).fetchall()
        except duckdb.Error as error:
            failure = str(error)
            if limits is not None and limits.search(failure):
                return
        self.agreed = False
        result: Any = None
        refusal: str | None = None
        try:
            result = ours()
        except (ServerError, ClientSideError) as error:
            refusal = str(error)
        assert failure is not None or refusal is None, (
            f"{sql}\nworks in DuckDB, but not here: {refusal}"
        )
        assert failure is None or refusal is not None, (
            f"{sql}\nworks here, but not in DuckDB: {failure}"
        )
        if isinstance(result, Changed) and returning:
            assert result.rows is not None
            assert result.total == theirs.num_rows, sql
            assert _unordered(result.rows) == _unordered(theirs), sql
        elif isinstance(result, Changed):
            assert [(result.total,)] == theirs, sql
        self.agreed = True


def _where(condition: str | None) -> str:
    return "" if condition is None else f" WHERE {condition}"


def _unordered(rows: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())


# -------------------------------------------------------------------------------------- strategies


@st.composite
def constraints(draw: st.DrawFn, columns: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return options of the client's CREATE TABLE, and the SQL clauses that say the same."""
    plain = [
        column
        for column, kind in columns.items()
        if "(" not in kind.replace("(8,2)", "") and "[" not in kind
    ]
    numbers = [column for column in plain if columns[column] in ("INTEGER", "BIGINT", "DOUBLE")]
    choice = draw(
        st.sampled_from(["none", "not null", "check", "unique", "unique both", "key", "key both"])
    )
    if choice == "not null":
        column = draw(st.sampled_from(list(columns)))
        return {"not_null": [column]}, []
    if choice == "check" and numbers:
        column = draw(st.sampled_from(numbers))
        other = draw(st.sampled_from(numbers))
        check = draw(
            st.sampled_from(
                [f"({column} < 3)", f"({column} >= {other})", f"(({column} + 1) <> {other})"]
            )
        )
        return {"checks": [check]}, [f"CHECK {check}"]
    if choice == "unique" and plain:
        column = draw(st.sampled_from(plain))
        return {"unique": [column]}, [f"UNIQUE ({column})"]
    if choice == "unique both" and len(plain) > 1:
        return {"unique": [tuple(plain[:2])]}, [f"UNIQUE ({plain[0]}, {plain[1]})"]
    if choice == "key" and plain:
        return {"primary_key": [plain[0]]}, [f"PRIMARY KEY ({plain[0]})"]
    if choice == "key both" and len(plain) > 1:
        return {"primary_key": plain[:2]}, [f"PRIMARY KEY ({plain[0]}, {plain[1]})"]
    return {}, []


@st.composite
def rows_of(draw: st.DrawFn, columns: dict[str, str]) -> str:
    """A SELECT of up to four rows of constants."""
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        values = (
            f"CAST({draw(st.sampled_from(VALUES.get(kind, ['NULL'])))} AS {kind}) AS {column}"
            for column, kind in columns.items()
        )
        rows.append("SELECT " + ", ".join(values))
    return " UNION ALL ".join(rows)


@st.composite
def condition(draw: st.DrawFn, columns: dict[str, str]) -> str | None:
    if not columns:
        return None
    column = draw(st.sampled_from(list(columns)))
    value = draw(st.sampled_from(VALUES.get(columns[column], ["NULL"])[1:] or ["NULL"]))
    forms = [
        None,
        None,
        None,
        f"{column} IS NULL",
        f"{column} IS NOT NULL",
        f"{column} = {value}",
        f"{column} > {value}",
    ]
    # Never; the simulation has no filter JSON for `false`.
    forms.append(f"{column} IS NULL AND {column} IS NOT NULL")
    return draw(st.sampled_from(forms))


@st.composite
def expression(draw: st.DrawFn, column: str, columns: dict[str, str]) -> str:
    """Return an expression of the column's type, over the columns of that type."""
    kind = columns[column]
    same = [other for other, its in columns.items() if its == kind]
    forms = [f"CAST({value} AS {kind})" for value in VALUES.get(kind, ["NULL"])] + same
    if kind in ("INTEGER", "BIGINT", "DOUBLE"):
        forms += [f"{draw(st.sampled_from(same))} + 1", f"CAST(error('no') AS {kind})"]
    return draw(st.sampled_from(forms))


# -------------------------------------------------------------------------------------------- test


@pytest.mark.skipif(
    duckdb.__version__.startswith("1."),
    reason="the model is DuckDB 2; DuckDB 1 drops schemas whose tables were altered",
)
@pytest.mark.timeout(600 if not EXAMPLES else 0)
@pytest.mark.parametrize("examples", [12, pytest.param(100, marks=pytest.mark.long)])
def test_random_statements_do_the_same_as_in_duckdb(examples: int) -> None:
    with Server([], "grpc://127.0.0.1:0") as server:
        machine = type("Served", (Statements,), {"server": server})
        run_state_machine_as_test(
            machine, settings=settings(PROFILE, max_examples=EXAMPLES or examples)
        )
