"""Random statements give the same rows as a table of DuckDB, and history keeps every step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.memory.statements import CTX, delete, ids_of, insert, rows_of, update

from sparkport.catalog import AddColumnOptions, Constraints, Context, RemoveColumnOptions
from sparkport.errors import ConstraintViolation
from sparkport.memory import MemoryCatalog, MemoryTable

NUMBERS = st.one_of(st.none(), st.integers(-5, 5))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "A", "ä", "\x00"]))
REALS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]))


def _comparable(rows: Iterable[Iterable[Any]]) -> str:
    # DuckDB's UPDATE may keep -0.0 where it should write 0.0, because they are equal.
    return repr(
        [[value + 0.0 if isinstance(value, float) else value for value in row] for row in rows]
    )


class Statements(RuleBasedStateMachine):
    """Runs statements on both tables. DuckDB's has a column `r` with our row ids, to compare by."""

    @initialize(
        rows=st.sampled_from([0, 1, 10, 100, 5_000]),
        constraints=st.sampled_from(
            [
                Constraints(),
                Constraints(unique=(("n", "t"),)),
                Constraints(checks=("n + 1 < 6",), not_null=("t",)),
                Constraints(unique=(("f",),)),
            ]
        ),
    )
    def create(self, rows: int, constraints: Constraints) -> None:
        self.duckdb = duckdb.connect()
        self.duckdb.execute(
            "CREATE TABLE t (r BIGINT, n BIGINT, t VARCHAR, f DOUBLE"
            + (", UNIQUE (n, t)" if constraints.unique == (("n", "t"),) else "")
            + (", UNIQUE (f)" if constraints.unique == (("f",),) else "")
            + (", CHECK (n + 1 < 6)" if constraints.checks else "")
            + ")"
        )
        if constraints.not_null:
            self.duckdb.execute("ALTER TABLE t ALTER t SET NOT NULL")
        self.names = ["n", "t", "f"]
        data = pa.table(
            {
                "n": pa.array([-1 - n for n in range(rows)], pa.int64()),
                "t": pa.array([str(n) for n in range(rows)], pa.string()),
                "f": pa.array([n + 10.0 for n in range(rows)], pa.float64()),
            }
        )
        if rows:
            self.duckdb.execute(
                "INSERT INTO t SELECT range, -1 - range, range::VARCHAR, range + 10 FROM range(?)",
                [rows],
            )
        self.table = MemoryTable("t", data, constraints=constraints)
        catalog = MemoryCatalog()
        catalog.add_schema("s").add_table(self.table)
        self.catalog = catalog
        self.next_id = rows
        self.ctx: Context = CTX
        self.history = {0: self._sum()}

    def teardown(self) -> None:
        if hasattr(self, "duckdb"):
            self.duckdb.close()

    def _sum(self) -> Any:
        return self.duckdb.execute("SELECT count(*), sum(r), sum(n) FROM t").fetchone()

    def _both(self, ours: Any, theirs: str, values: list[list[Any]]) -> bool:
        """Run a statement on both sides; they agree on whether it violates a constraint."""
        self.duckdb.execute("BEGIN")
        try:
            self.duckdb.executemany(theirs, values)
            self.duckdb.execute("COMMIT")
            violated = False
        except duckdb.ConstraintException:
            self.duckdb.execute("ROLLBACK")
            violated = True
        try:
            ours()
            assert not violated, (theirs, values)
        except ConstraintViolation:
            assert violated, (theirs, values)
        if not violated and self.ctx is CTX:
            self.history[self.table.current.number] = self._sum()
        return not violated

    @rule(rows=st.lists(st.tuples(NUMBERS, TEXTS, REALS), max_size=5))
    def insert(self, rows: list[tuple[Any, Any, Any]]) -> None:
        if not rows:
            return
        before = set(ids_of(self.table, self.ctx))
        full = [dict(zip(("n", "t", "f"), row, strict=True)) for row in rows]
        columns = [{name: row.get(name) for name in self.names} for row in full]
        next_id = self.table._next_row_id
        values = [
            [next_id + i, *(row[name] for name in self.names)] for i, row in enumerate(columns)
        ]
        marks = ", ".join("?" for _ in range(len(self.names) + 1))
        if self._both(
            lambda: insert(self.table, columns, self.ctx), f"INSERT INTO t VALUES ({marks})", values
        ):
            assert set(ids_of(self.table, self.ctx)) - before == {value[0] for value in values}

    def _some_ids(self, data: st.DataObject, label: str) -> list[int]:
        ids = ids_of(self.table, self.ctx)
        if not ids:
            return []
        start = data.draw(st.integers(0, len(ids) - 1), label=label)
        step = data.draw(st.sampled_from([1, 7, 1000]))
        count = data.draw(st.sampled_from([1, 3, 50]))
        return ids[start : start + step * count : step]

    @rule(data=st.data(), value=NUMBERS)
    def update_numbers(self, data: st.DataObject, value: int | None) -> None:
        ids = self._some_ids(data, "update")
        if ids:
            rows = [{"n": value, "rowid": row_id} for row_id in reversed(ids)]
            self._update("n", rows)

    @rule(data=st.data())
    def shift_reals(self, data: st.DataObject) -> None:
        """Move each row's unique value to its neighbour, within one statement."""
        ids = self._some_ids(data, "shift")
        if ids and "f" in self.names:
            known = {
                i: row["f"]
                for i, row in zip(
                    ids_of(self.table, self.ctx), rows_of(self.table, self.ctx), strict=True
                )
            }
            rows = [{"f": known[ids[i - 1]], "rowid": row_id} for i, row_id in enumerate(ids)]
            before = self.table.current.number
            update(self.table, rows, self.ctx)
            self.duckdb.execute("CREATE TEMP TABLE moved AS SELECT * FROM t")
            self.duckdb.executemany(
                "UPDATE moved SET f = ? WHERE r = ?", [[row["f"], row["rowid"]] for row in rows]
            )
            self.duckdb.execute("DELETE FROM t")
            self.duckdb.execute("INSERT INTO t SELECT * FROM moved")
            self.duckdb.execute("DROP TABLE moved")
            if self.table.current.number != before:
                self.history[self.table.current.number] = self._sum()

    def _update(self, name: str, rows: list[dict[str, Any]]) -> None:
        # In one statement, as on our side: DuckDB checks the statements of a transaction one by
        # one.
        values = ", ".join(
            f"({row['rowid']}, {'NULL' if row[name] is None else row[name]})" for row in rows
        )
        theirs = (
            f"UPDATE t SET {name} = v.x FROM"
            f" (SELECT r, x::BIGINT AS x FROM (VALUES {values}) AS q(r, x)) AS v "
        )
        self._both(
            lambda: update(self.table, rows, self.ctx), theirs + "WHERE t.r = v.r AND ?", [[True]]
        )

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        ids = self._some_ids(data, "delete")
        if ids:
            self._both(
                lambda: delete(self.table, ids, self.ctx),
                "DELETE FROM t WHERE r = ?",
                [[i] for i in ids],
            )

    @precondition(lambda self: self.ctx is CTX)
    @rule()
    def begin(self) -> None:
        self.ctx = Context(transaction_id=self.catalog.begin_transaction(CTX))

    @precondition(lambda self: self.ctx is not CTX)
    @rule()
    def commit(self) -> None:
        self.catalog.commit_transaction(CTX, self.ctx.transaction_id or "")
        self.ctx = CTX
        self.history[self.table.current.number] = self._sum()

    @precondition(lambda self: self.ctx is CTX and not self.table.constraints)
    @rule()
    def drop_and_add_the_reals(self) -> None:
        if "f" in self.names:
            self.table.remove_column(CTX, "f", RemoveColumnOptions())
            self.duckdb.execute("ALTER TABLE t DROP f")
            self.names.remove("f")
        else:
            field = pa.field("f", pa.float64(), metadata={"default": "0.5"})
            self.table.add_column(CTX, pa.schema([field]), AddColumnOptions())
            self.duckdb.execute("ALTER TABLE t ADD f DOUBLE DEFAULT 0.5")
            self.names.append("f")
        self.history[self.table.current.number] = self._sum()

    @invariant()
    def same_rows(self) -> None:
        if not hasattr(self, "table"):
            return
        theirs = self.duckdb.execute(
            f"SELECT r, {', '.join(self.names)} FROM t ORDER BY r"
        ).fetchall()
        ours = rows_of(self.table, self.ctx)
        assert ids_of(self.table, self.ctx) == [row[0] for row in theirs]
        assert _comparable(row.values() for row in ours) == _comparable(row[1:] for row in theirs)

    @invariant()
    def same_history(self) -> None:
        if not hasattr(self, "table"):
            return
        for number in list(self.history)[-3:]:
            rows = rows_of(self.table, version=number)
            known = [row["n"] for row in rows if row["n"] is not None]
            count, _, total = self.history[number]
            assert (len(rows), sum(known) if known else None) == (count, total)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("examples", [10, pytest.param(50, marks=pytest.mark.long)])
def test_random_statements_do_the_same_as_in_duckdb(examples: int) -> None:
    profile = settings(
        max_examples=examples,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Statements, settings=profile)
