"""The random statements of `tests/client/test_model.py` on the lake: fewer, and with blocks.

`SPARKPORT_MODEL_EXAMPLES=50 pytest tests/spark/test_dml_model.py` tries more, others each time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import duckdb
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from tests.client.test_model import EXAMPLES, PROFILE, Statements
from tests.spark.places import Place

from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient

_SCHEMA = "s1"


class LakeStatements(Statements):
    """Statements that mostly change rows, also in blocks of DuckDB and transactions of the lake."""

    place: Place
    numbers = itertools.count()

    @initialize(data=st.data(), lossless=st.booleans())
    def attach(self, data: st.DataObject, lossless: bool) -> None:
        self.catalog = f"model{next(self.numbers)}"
        self.lake = LakeCatalog(source=self.place.source(self.catalog), name=self.catalog)
        self.server.add_catalog(self.lake)
        self.client = DuckDBClient(
            self.server.location, self.catalog, arrow_lossless=lossless, timeout=60
        )
        self.duckdb = duckdb.connect()
        self.duckdb.execute(
            f"SET arrow_lossless_conversion = true; ATTACH ':memory:' AS {self.catalog}"
        )
        self.duckdb.execute(f"USE {self.catalog}")
        self.create_schema(_SCHEMA)
        for name in ("t1", "t2", "t3"):
            self.create_table(_SCHEMA, name, data, if_not_exists=False)
            self._insert(_SCHEMA, name, data, returning=False)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "lake"):
            self.lake.close()

    @rule(data=st.data(), returning=st.booleans())
    def change(self, data: st.DataObject, returning: bool) -> None:
        changes: list[Callable[..., None]] = [
            self.insert,
            self.insert_select,
            self.update,
            self.update,
            self.delete,
        ]
        data.draw(st.sampled_from(changes), label="change")(data=data, returning=returning)

    @rule(data=st.data())
    def block(self, data: st.DataObject) -> None:
        """BEGIN … COMMIT, which the server does not see (T23): statements take effect at once."""
        self.client.begin()
        for returning in data.draw(st.lists(st.booleans(), min_size=1, max_size=3), label="block"):
            self.change(data, returning)
            self._compare(self.client, self.named)
        self.client.commit()

    @rule(data=st.data(), end=st.sampled_from(["lake_commit", "lake_rollback"]))
    def transaction(self, data: st.DataObject, end: str) -> None:
        """A transaction: its changes are invisible to others until its end."""
        if _SCHEMA not in self.client.schemas():
            return
        before = self._contents()
        self.client.begin()
        self.client.call(_SCHEMA, "lake_begin", {}, rows=1)
        for returning in data.draw(
            st.lists(st.booleans(), min_size=1, max_size=3), label="transaction"
        ):
            self.change(data, returning)
            self._compare(self.client, self.named)
        with DuckDBClient(self.server.location, self.catalog, timeout=60) as other:
            for (schema, name), rows in before.items():
                assert _unordered(other.scan(schema, name)) == _unordered(rows), f"{schema}.{name}"
        self.client.call(_SCHEMA, end, {}, rows=1)
        self.client.commit()
        if end == "lake_rollback":
            self._restore(before)

    def _contents(self) -> dict[tuple[str, str], pa.Table]:
        return {
            (schema, name): self.duckdb.sql(f"FROM {schema}.{name}").to_arrow_table()
            for schema, name in self._known_tables()
        }

    def _restore(self, contents: Mapping[tuple[str, str], pa.Table]) -> None:
        for (schema, name), rows in contents.items():
            self.duckdb.execute(f"DELETE FROM {schema}.{name}")
            self.duckdb.register("restored", rows)
            self.duckdb.execute(f"INSERT INTO {schema}.{name} FROM restored")
            self.duckdb.unregister("restored")


def _unordered(rows: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())


@pytest.mark.skipif(duckdb.__version__.startswith("1."), reason="the model is DuckDB 2")
@pytest.mark.timeout(600 if not EXAMPLES else 0)
@pytest.mark.parametrize("examples", [3, pytest.param(30, marks=pytest.mark.long)])
def test_random_statements_do_the_same_as_in_duckdb(
    lake: LakeCatalog, place: Place, examples: int
) -> None:
    with Server([], "grpc://127.0.0.1:0") as server:
        machine = type("Served", (LakeStatements,), {"server": server, "place": place})
        profile = settings(PROFILE, max_examples=EXAMPLES or examples, stateful_step_count=16)
        run_state_machine_as_test(machine, settings=profile)
