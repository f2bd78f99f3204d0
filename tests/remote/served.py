"""A lake in this process, served with a table `s.t`, and a client of it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.places import need_every_jar

from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSource
from sparkport.testing import DuckDBClient, ServerError

__all__ = ["COLUMNS", "Model", "expect_clear", "served", "temporary_files_in"]

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
_JAVA = ("\n", "Exception", "Traceback", "org.apache", "java.", "s3://", "jdbc:")


@contextmanager
def served(source: LakeSource, temporary: Path) -> Iterator[DuckDBClient]:
    """A client of a lake. Its staging on this machine is in the folder for temporary files."""
    need_every_jar()
    with (
        temporary_files_in(temporary),
        LakeCatalog(source=source, name="lake") as lake,
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "lake", timeout=200) as client,
    ):
        yield client.attach()


@contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Have Python put temporary files into a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield


class Model:
    """Changes a table at random, and knows what is in it.

    What was refused may not be there. Only an error which says that it is unknown whether a
    statement took effect leaves both possible.
    """

    def __init__(self, client: DuckDBClient, seed: int) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self._next = 1
        self.rows: dict[int, int] = {}
        self.refused: list[ServerError] = []
        self.done = 0

    def change(self) -> None:
        """One statement, which is done or refused."""
        after = dict(self.rows)
        operation = self._chance.choice(("insert", "insert", "update", "delete", "upsert"))
        try:
            if operation == "insert":
                new = {self._next + index: index for index in range(self._chance.randint(1, 50))}
                self._next += len(new)
                after |= new
                self._client.insert("s", "t", _table(new))
            elif operation == "upsert":
                new = dict.fromkeys(self._some(), -1) | {self._next: -1}
                self._next += 1
                after |= new
                self._client.in_out("s", "upsert", "t", "id", rows=_table(new))
            elif operation == "update":
                changed = self._some()
                after |= {each: after[each] + 1 for each in changed}
                self._client.update("s", "t", {"v": "v + 1"}, where=_in(changed))
            else:
                gone = self._some()
                after = {key: value for key, value in after.items() if key not in gone}
                self._client.delete("s", "t", _in(gone))
        except ServerError as error:
            self.refused.append(error)
            if "unknown whether" in str(error):
                self.rows = after if self.found() == after else self.rows
        else:
            self.done += 1
            self.rows = after

    def _some(self) -> list[int]:
        return self._chance.sample(sorted(self.rows), min(len(self.rows), 5))

    def found(self) -> dict[int, int]:
        """What is in the table."""
        found = self._client.scan("s", "t", ["id", "v"])
        rows = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
        assert len(rows) == found.num_rows, "a row is there twice"
        return rows


def _table(rows: dict[int, int]) -> pa.Table:
    return pa.table({"id": list(rows), "v": list(rows.values())}, schema=COLUMNS)


def _in(keys: list[int]) -> str:
    return f"id IN ({', '.join(map(str, keys or [-1]))})"


def expect_clear(message: str, *secrets: str) -> None:
    """Expect one sentence for a person, without secrets, paths or Java's words."""
    shown = [each for each in (*_JAVA, *secrets) if each in message]
    assert shown == [], message
    assert 20 < len(message) < 600, message
