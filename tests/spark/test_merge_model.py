"""Random statements of `spark_run`, mostly MERGE, do to a table what they do to one of DuckDB.

DuckDB's table has no constraints: the rows that it ends up with tell which of them are violated.
What Spark refuses besides, a row of the target that matches twice, is asked before the statement.

`SPARKPORT_MODEL_EXAMPLES=500 pytest tests/spark/test_merge_model.py` tries more, others each time.
"""

from __future__ import annotations

import os
import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.client.test_model import EXAMPLES
from tests.spark.lake_tables import create, find, sql_name, values
from tests.spark.running import Runner

from sparkport.catalog import Constraints, Context
from sparkport.errors import BadRequest, ConstraintViolation, SparkportError
from sparkport.spark import LakeCatalog

_COLUMNS = pa.schema([("k", pa.int64()), ("a", pa.int32()), ("b", pa.string()), ("p", pa.string())])
_NAMES = tuple(_COLUMNS.names)
_STATEMENTS = 5
_RULES = {
    "nothing": Constraints(),
    "PRIMARY KEY": Constraints(primary_key=("k",), not_null=("k",)),
    "UNIQUE": Constraints(unique=(("k", "p"),)),
    "CHECK": Constraints(checks=("(a <> 3)",)),
    "NOT NULL": Constraints(not_null=("b",)),
    "all": Constraints(
        primary_key=("k",), not_null=("k", "a"), unique=(("b",),), checks=("(a + k <> 4)",)
    ),
}
_BROKEN = {
    "PRIMARY KEY": "SELECT k FROM t GROUP BY k HAVING count(*) > 1 OR k IS NULL",
    "UNIQUE": "SELECT k FROM t WHERE k IS NOT NULL AND p IS NOT NULL GROUP BY k, p "
    "HAVING count(*) > 1",
    "CHECK": "FROM t WHERE a = 3",
    "NOT NULL": "FROM t WHERE b IS NULL",
    "all": "SELECT 1 FROM t GROUP BY k HAVING count(*) > 1 OR k IS NULL OR bool_or(a IS NULL) OR "
    "bool_or(a + k = 4) UNION ALL SELECT 1 FROM t WHERE b IS NOT NULL GROUP BY b "
    "HAVING count(*) > 1",
}
"""By rule: a query whose rows tell that it is broken."""

_SEEDS = random.sample(range(10**6), EXAMPLES) if EXAMPLES else range(4)
_MOST = 40 if os.environ.get("SPARKPORT_TEST_EVERYTHING") else 8
_MORE = [pytest.param(seed, marks=pytest.mark.long) for seed in range(1000, 1000 + _MOST)]


@pytest.mark.timeout(280)
@pytest.mark.parametrize("seed", [*_SEEDS, *(_MORE if not EXAMPLES else ())])
def test_random_statements_do_the_same_as_in_duckdb(
    lake: LakeCatalog, namespace: str, seed: int
) -> None:
    model = Model(lake, namespace, random.Random(seed))
    for _ in range(_STATEMENTS):
        model.step()


class Model:
    """A table of the lake and one of DuckDB: `t`, which is changed, and `s`, which is read."""

    def __init__(self, lake: LakeCatalog, namespace: str, chance: random.Random) -> None:
        self.run = Runner(lake, namespace)
        self.chance = chance
        self.rule = chance.choice(list(_RULES))
        self.duckdb = duckdb.connect()
        create(lake, namespace, "t", _COLUMNS, constraints=_RULES[self.rule])
        self.defaults = chance.choice([{}, {"b": "'none'"}, {"a": "40 + 2", "b": "'none'"}])
        for column, default in self.defaults.items():
            find(lake, namespace, "t").set_default(Context(), column, default)
        create(lake, namespace, "s", _COLUMNS)
        name = sql_name(lake, namespace, "t")
        lake.spark.sql(f"ALTER TABLE {name} WRITE UNORDERED")
        if chance.random() < 0.4:
            lake.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD p")
        if chance.random() < 0.3:
            modes = [f"'write.{each}.mode' = 'copy-on-write'" for each in _MODES]
            lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({', '.join(modes)})")
        for table in ("t", "s"):
            self.duckdb.execute(f"CREATE TABLE {table} (k BIGINT, a INT, b VARCHAR, p VARCHAR)")
            if table == "t":
                for column, default in self.defaults.items():
                    self.duckdb.execute(f"ALTER TABLE t ALTER {column} SET DEFAULT {default}")
            for rows in self._batches(is_source=table == "s"):
                self.duckdb.execute(f"INSERT INTO {table} VALUES {rows}")
                lake.spark.sql(f"INSERT INTO {sql_name(lake, namespace, table)} VALUES {rows}")
        if chance.random() < 0.5:  # a file with rows that are deleted
            lake.spark.sql(f"DELETE FROM {name} WHERE k = 2")
            self.duckdb.execute("DELETE FROM t WHERE k = 2")
        self.before = self._rows()
        assert not self._is_broken()

    def _batches(self, *, is_source: bool) -> list[str]:
        """The rows of some INSERTs; those of the target violate no rule."""
        chance, rows = self.chance, []
        keys = [chance.choice(["NULL", *range(8)]) for _ in range(9)] if is_source else range(7)
        for key in keys:
            number = chance.choice(["NULL", 0, 1, 2, 5] if self.rule != "all" else [10, 20])
            text = chance.choice(["NULL", "'x'", "'y'"])
            if self.rule in ("all", "NOT NULL") and not is_source:
                text = f"'row {key}'"
            rows.append(
                f"({key}, {number}, {text}, {chance.choice(['NULL', repr('n'), repr('m')])})"
            )
        parts = chance.randint(1, 3)
        return [", ".join(part) for part in (rows[at::parts] for at in range(parts)) if part]

    def step(self) -> None:
        """One statement, by both."""
        kinds = [self._merge] * 4 + [self._update, self._delete, self._overwrite, self._insert]
        spark, changes, is_ambiguous = self.chance.choice(kinds)()
        left = self.run.left("t")
        expected = None
        if not is_ambiguous:
            self.duckdb.execute("BEGIN")
            expected = changes()
        told = f"{self.rule}: {spark}"
        is_incomplete = any(each in spark for each in self._incomplete())
        if expected is None or is_incomplete or self._is_broken():
            if expected is not None:
                self.duckdb.execute("ROLLBACK")
            with pytest.raises(SparkportError) as caught:
                pytest.fail(f"not refused: {told}, {self.run.counts(spark)}, {self.before}")
            # Of two reasons, Spark tells the one that it finds first.
            allowed = (
                ConstraintViolation,
                *([BadRequest] if is_ambiguous or (is_incomplete and "DEFAULT" in spark) else []),
            )
            assert isinstance(caught.value, allowed), f"{told}: {caught.value}"
            assert self.run.left("t") == left, told
        else:
            self.duckdb.execute("COMMIT")
            assert self.run.counts(spark) == expected, told
        assert self._lake_rows() == self._rows(), f"{told}, {self.before}"
        self.before = self._rows()

    def _is_broken(self) -> bool:
        query = _BROKEN.get(self.rule)
        return query is not None and bool(self.duckdb.sql(query).fetchall())

    def _rows(self) -> list[Any]:
        return sorted(self.duckdb.sql("FROM t").fetchall(), key=repr)

    def _lake_rows(self) -> list[Any]:
        return sorted(values(find(self.run.lake, self.run.namespace, "t"), *_NAMES), key=repr)

    # ----------------------------------------------------------------------------------- statements

    def _merge(self) -> Any:
        source, condition = self._source(), self._matching()
        matched, missing, alone = self._matched(), self._missing(), self._alone()
        matched = matched or ([] if missing or alone else ["WHEN MATCHED THEN DELETE"])
        head = f"MERGE INTO t AS x USING {source} AS s ON {condition}"
        statement = " ".join([head, *matched, *missing, *alone])
        in_duckdb = statement.replace("UPDATE SET *", _ALL_SET).replace("INSERT *", _ALL_INSERTED)
        # Spark takes it that a row may be deleted twice, if nothing else can happen to it.
        is_checked = matched not in ([], ["WHEN MATCHED THEN DELETE"])
        twice = self.duckdb.sql(
            f"SELECT 1 FROM t AS x JOIN {source} AS s ON {condition} GROUP BY x.rowid "
            "HAVING count(*) > 1"
        ).fetchall()

        if twice and matched == ["WHEN MATCHED THEN DELETE"]:
            return self._merge()  # DuckDB refuses it

        def change() -> tuple[int, int, int]:
            before = self._count()
            done = self.duckdb.execute(f"{in_duckdb} RETURNING merge_action").fetchall()
            inserted, updated = (
                sum(action == each for (action,) in done) for each in ("INSERT", "UPDATE")
            )
            return inserted, updated, before + inserted - self._count()

        return statement, change, bool(is_checked and twice)

    def _source(self) -> str:
        return self.chance.choice(
            [
                "s",
                "s",
                "(SELECT * FROM s WHERE k > 3)",
                "(SELECT k, max(a) AS a, max(b) AS b, max(p) AS p FROM s GROUP BY k)",
                "(SELECT k, max(a) AS a, min(b) AS b, 'n' AS p FROM s WHERE k IS NOT NULL "
                "GROUP BY k)",
                "(SELECT k + 4 AS k, a, b, p FROM t WHERE k <> 5)",
                "(WITH w AS (SELECT DISTINCT k FROM s) "
                "SELECT k, 7 AS a, 'w' AS b, 'm' AS p FROM w)",
            ]
        )

    def _matching(self) -> str:
        return self.chance.choice(
            [
                *["x.k = s.k"] * 4,
                "x.k = s.k AND x.p = s.p",
                "x.k IS NOT DISTINCT FROM s.k",
                "x.k = s.k AND x.a < 5",
                "x.k = s.k + 1",
                "x.b = s.b AND x.k = s.k",
                "false",
            ]
        )

    def _matched(self) -> list[str]:
        chance, found = self.chance, []
        for condition in self._conditions(["x.a > s.a", "s.b IS NULL", "x.p = 'n'", "x.k < 4"]):
            action = chance.choice(["DELETE", "UPDATE SET *", f"UPDATE SET {self._set()}"])
            found.append(f"WHEN MATCHED{condition} THEN {action}")
        return found

    def _missing(self) -> list[str]:
        found = []
        for condition in self._conditions(["s.k > 2", "s.b = 'x'", "s.a IS NOT NULL"]):
            action = self.chance.choice(["INSERT *", "INSERT *", f"INSERT {self._inserted()}"])
            found.append(f"WHEN NOT MATCHED{condition} THEN {action}")
        return found

    def _alone(self) -> list[str]:
        if self.chance.random() < 0.6:
            return []
        found = []
        for condition in self._conditions(["x.k > 5", "x.a IS NULL", "x.p <> 'n'"]):
            change = self.chance.choice(
                ["a = x.a + 100", "b = 'alone', p = NULL", "k = x.k + 50", "a = DEFAULT"]
            )
            action = self.chance.choice(["DELETE", f"UPDATE SET {change}"])
            found.append(f"WHEN NOT MATCHED BY SOURCE{condition} THEN {action}")
        return found

    def _conditions(self, possible: list[str]) -> list[str]:
        """Of clauses of a kind, only the last may have no condition."""
        chance = self.chance
        some = chance.sample(possible, chance.randint(0, 2))
        return [*(f" AND {each}" for each in some), *([""] if chance.random() < 0.5 else [])]

    def _set(self) -> str:
        return self.chance.choice(
            [
                "a = s.a",
                "b = s.b, a = x.a + s.a",
                "a = CASE WHEN x.a > s.a THEN x.a ELSE 3 END",
                "b = x.b || coalesce(s.b, '?')",
                "k = s.k + 20",
                "p = s.p, b = NULL",
                "k = 6",
                "b = DEFAULT, a = s.a + 2",
            ]
        )

    def _inserted(self) -> str:
        return self.chance.choice(
            [
                "(k, a, b, p) VALUES (s.k, s.a, s.b, s.p)",
                "(p, b, a, k) VALUES ('new', upper(s.b), coalesce(s.a, 9), s.k + 30)",
                "(k, a) VALUES (s.k + 40, 11)",
                "(b, k) VALUES (s.b || 'new', s.k)",
                "(k, b, a, p) VALUES (s.k + 70, DEFAULT, DEFAULT, s.p)",
            ]
        )

    def _incomplete(self) -> list[str]:
        """What gives no value to a column that takes no NULL: that is refused at once."""
        needed = set(_RULES[self.rule].not_null) - set(self.defaults)
        given = {
            "INSERT (k, a) ": {"k", "a"},
            "INSERT (b, k) ": {"b", "k"},
            "VALUES (s.k + 70, DEFAULT, DEFAULT, s.p)": {"k", "p"},
            "t (k, p) ": {"k", "p"},
            "t (a, k) ": {"a", "k"},
            "a = DEFAULT": {"k", "b", "p"},
            "b = DEFAULT": {"k", "a", "p"},
        }
        return [each for each, names in given.items() if needed - names]

    def _update(self) -> Any:
        where = self._where()
        change = self.chance.choice(
            [
                "a = a + 1",
                "b = (SELECT max(b) FROM s)",
                "a = 1 + (SELECT min(a) FROM s WHERE k > 2)",
                "k = k + 60, b = 'moved ' || CAST(k AS STRING)",
                "p = CASE WHEN p = 'n' THEN 'm' ELSE NULL END",
                "a = 3",
                "b = NULL",
                "a = DEFAULT, b = DEFAULT",
            ]
        )
        statement = f"UPDATE t SET {change}{where}"
        return statement, lambda: (0, self._changed(statement), 0), False

    def _delete(self) -> Any:
        statement = f"DELETE FROM t{self._where()}"
        return statement, lambda: (0, 0, self._changed(statement)), False

    def _where(self) -> str:
        return self.chance.choice(
            [
                "",
                " WHERE a > 1",
                " WHERE k IN (SELECT k FROM s)",
                " WHERE k IN (SELECT k + 1 FROM s WHERE k IS NOT NULL)",
                " WHERE k NOT IN (SELECT k FROM s)",
                " WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND s.a IS NULL)",
                " WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = t.k)",
                " WHERE k = (SELECT max(k) FROM s)",
                " WHERE p IS NULL OR k < 3",
            ]
        )

    def _query(self) -> str:
        return self.chance.choice(
            [
                "SELECT * FROM s",
                "SELECT k + 100 AS k, a, b, p FROM t WHERE k < 5",
                "SELECT k, max(a), max(b), 'n' FROM s WHERE k IS NOT NULL GROUP BY k",
                "WITH w AS (SELECT DISTINCT k FROM s WHERE k > 1) "
                "SELECT k + 200, 1, 'w' || CAST(k AS STRING), NULL FROM w",
                "SELECT t.k + 300, s.a, t.b || CAST(s.k AS STRING), s.p FROM t JOIN s ON t.k = s.k",
                "SELECT * FROM s WHERE false",
            ]
        )

    def _insert(self) -> Any:
        query = self.chance.choice(
            [
                *[self._query()] * 3,
                "(k, p) SELECT k + 400, max(p) FROM s WHERE k IS NOT NULL GROUP BY k",
                "(a, k) WITH w AS (SELECT DISTINCT k FROM s WHERE k > 1) SELECT 8, k + 500 FROM w",
            ]
        )
        statement = f"INSERT INTO t {query}"
        return statement, lambda: (self._changed(statement), 0, 0), False

    def _overwrite(self) -> Any:
        query = self._query()

        def change() -> tuple[int, int, int]:
            self.duckdb.execute(f"CREATE OR REPLACE TEMP TABLE new AS {query}")
            deleted = self._changed("DELETE FROM t")
            return self._changed("INSERT INTO t FROM new"), 0, deleted

        return f"INSERT OVERWRITE t {query}", change, False

    def _changed(self, statement: str) -> int:
        found = self.duckdb.execute(statement).fetchone()
        assert found is not None
        return int(found[0])

    def _count(self) -> int:
        return self.duckdb.table("t").shape[0]


_MODES = ("update", "delete", "merge")
_ALL_SET = "UPDATE SET " + ", ".join(f"{name} = s.{name}" for name in _NAMES)
_ALL_INSERTED = f"INSERT ({', '.join(_NAMES)}) VALUES ({', '.join(f's.{each}' for each in _NAMES)})"
