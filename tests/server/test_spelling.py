"""Column names in any case, on every route: a rule is about the column, however it is spelled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest
from tests.contracts.contract_client import ContractClient, insert_command, update_command
from tests.contracts.ddl_requests import add_column_body, alter_body, create_table_body, one_column
from tests.server.raw_client import failure_of, path

import sparkport as sp
from sparkport.catalog import (
    AddColumnOptions,
    Context,
    CreateTableOptions,
    DynamicTable,
    Privilege,
    RemoveColumnOptions,
    ScanOptions,
    Table,
    rowid_field,
)
from sparkport.errors import BadRequest
from sparkport.memory import MemorySchema
from sparkport.testing import DuckDBClient, ServerError
from sparkport.testing.local import LocalDuckDB
from sparkport.wire.filters import decode_filter

PAY = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "salary": pa.array([777, 54321], pa.int64()),
        "point": pa.array([{"x": 1}, {"x": 2}], pa.struct([("x", pa.int64())])),
    }
)
TWINS = pa.table(
    {"id": pa.array([1, 2], pa.int64()), "salary": [777, 54321], "SALARY": [777, 54321]}
)
MASK = "0"


class Noting(DynamicTable):
    """A foreign implementation of a table, which records requests and compares names exactly."""

    def __init__(self, name: str, rows: pa.Table) -> None:
        self._name = name
        self._rows = rows.append_column(rowid_field(), pa.array(range(rows.num_rows), pa.int64()))
        self.scans: list[ScanOptions] = []
        self.altered: list[tuple[str, ...]] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._rows.schema

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        self.scans.append(options)
        yield from self._rows.select(options.columns or self._rows.schema.names).to_batches()

    def add_column(self, ctx: Context, column_schema: pa.Schema, options: AddColumnOptions) -> None:
        self.altered.append(("add", column_schema.names[0]))

    def remove_column(self, ctx: Context, name: str, options: RemoveColumnOptions) -> None:
        self.altered.append(("remove", name))

    def rename_column(self, ctx: Context, old_name: str, new_name: str) -> None:
        self.altered.append(("rename", old_name, new_name))

    def set_default(self, ctx: Context, column: str, expression: str) -> None:
        self.altered.append(("default", column))

    def set_not_null(self, ctx: Context, column: str) -> None:
        self.altered.append(("not null", column))

    def drop_not_null(self, ctx: Context, column: str) -> None:
        self.altered.append(("null", column))

    def change_column_type(self, ctx: Context, column_schema: pa.Schema, expression: str) -> None:
        self.altered.append(("type", column_schema.names[0]))

    def add_field(self, ctx: Context, path: Any, column_schema: pa.Schema, options: Any) -> None:
        self.altered.append(("add field", *path))

    def remove_field(self, ctx: Context, path: Any, options: Any) -> None:
        self.altered.append(("remove field", *path))

    def rename_field(self, ctx: Context, path: Any, new_name: str) -> None:
        self.altered.append(("rename field", *path))


class Lenient(MemorySchema):
    """Makes whatever it is asked for."""

    def create_table(
        self, ctx: Context, name: str, arrow_schema: pa.Schema, options: CreateTableOptions
    ) -> Table:
        return Noting(name, arrow_schema.empty_table())


@pytest.fixture
def noting() -> Noting:
    return Noting("noting", PAY)


@pytest.fixture
def server(noting: Noting) -> Iterator[sp.Server]:
    lake = sp.MemoryCatalog("lake")
    shop = lake.add_schema("shop")
    shop.add_table(sp.MemoryTable("pay", PAY))
    shop.add_table(noting)
    shop.add_table(Noting("twins", TWINS))
    lake.add(Lenient("lenient"))
    everything = (Privilege.READ, Privilege.WRITE, Privilege.ALTER)
    policy = sp.Policy(
        [sp.Grant(("admin", "masked", "filtered", "other"), "lake", everything)],
        [sp.RowFilter("lake.shop.twins", "Salary = 777", ("filtered",))],
        [
            sp.Mask("lake.*.*", "SALARY", MASK, ("masked",)),
            # Comes later, and does not count.
            sp.Mask("lake.shop.*", "Salary", "salary", ("masked",)),
        ],
    )
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=policy)
    with sp.Server(lake, "grpc://127.0.0.1:0", settings) as server:
        yield server


@pytest.fixture
def client(server: sp.Server) -> Iterator[ContractClient]:
    with ContractClient(server.location) as client:
        yield client


@pytest.fixture
def masked(server: sp.Server) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, "lake", token="masked", timeout=60) as client:
        yield client


def headers(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {who}", "airport-catalog": "lake"}


def filter_json(where: str, name: str, spelled: str) -> str:
    """The filter that DuckDB would send, about a BIGINT, with another name for it."""
    sent = json.loads(LocalDuckDB.shared(False).filter_json(where, {name: "BIGINT"}))
    return json.dumps({**sent, "column_binding_names_by_index": [spelled]})


def salaries(client: ContractClient) -> list[int]:
    return sorted(row["salary"] for row in client.rows("lake.shop.pay", headers("admin")))


# ----------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize("name", ["salary", "SALARY", "Salary"])
def test_a_masked_column_is_not_written_under_any_name(client: ContractClient, name: str) -> None:
    values = pa.table({name: pa.array([5], pa.int64())})
    failure = client.put_failure(update_command("shop.pay", [0]), values, headers("masked"))
    assert failure.code == "PERMISSION_DENIED"
    assert failure.message.startswith("column salary of table pay is masked for you")

    values = values.append_column("rowid", pa.array([0], pa.int64()))
    for returning in (False, True):
        failure = client.exchange_failure(
            "update", "shop.pay", values, headers("masked"), returning=returning
        )
        assert failure.code == "PERMISSION_DENIED"
    assert salaries(client) == [777, 54321]


def test_tables_get_their_own_spelling(client: ContractClient) -> None:
    admin = headers("admin")
    changed = client.exchange(
        "update",
        "shop.pay",
        pa.table({"SALARY": pa.array([5], pa.int64()), "rowid": pa.array([0], pa.int64())}),
        admin,
        returning=True,
    )
    assert changed.batches == [[{"SALARY": 5, "rowid": 0}]], "read by position, as it was sent"
    client.put(
        update_command("shop.pay", [1]), pa.table({"Salary": pa.array([6], pa.int64())}), admin
    )
    assert salaries(client) == [5, 6]
    row = pa.table(
        {"POINT": PAY.column("point")[:1], "Id": pa.array([3], pa.int64()), "SALARY": [7]}
    )
    client.put(insert_command("shop.pay"), row, admin)
    client.exchange("insert", "shop.pay", row, admin)
    assert salaries(client) == [5, 6, 7, 7]


def test_one_column_is_not_sent_under_two_names(client: ContractClient) -> None:
    values = pa.table({"salary": pa.array([5], pa.int64()), "SALARY": pa.array([6], pa.int64())})
    failure = client.put_failure(update_command("shop.pay", [0]), values, headers("admin"))

    assert failure.code == "INVALID_ARGUMENT"
    assert salaries(client) == [777, 54321]


# ----------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("name", ["salary", "SALARY"])
def test_a_filter_on_a_masked_column_is_not_passed_on_under_any_name(
    masked: DuckDBClient, noting: Noting, name: str
) -> None:
    """With the mask it keeps all rows; the table itself might keep some, and tell which."""
    sent = filter_json("salary IS NOT NULL", "salary", name)
    rows = masked.scan("shop", "noting", ["id"], filter=sent)

    assert rows.column("id").to_pylist() == [1, 2]
    (asked,) = noting.scans
    assert asked.filter is None


def test_what_is_passed_on_says_nothing_of_masked_columns(
    masked: DuckDBClient, noting: Noting
) -> None:
    masked.scan("shop", "noting", where="salary = 0 AND id IS NOT NULL")

    (asked,) = noting.scans
    assert asked.filter is not None
    assert asked.filter.columns == {"id"}
    assert "salary" not in asked.filter.json


@pytest.mark.parametrize("name", ["id", "ID"])
def test_filters_are_evaluated_whatever_the_case_of_their_columns(
    server: sp.Server, noting: Noting, name: str
) -> None:
    with DuckDBClient(server.location, "lake", token="admin", timeout=60) as admin:
        sent = filter_json("id = 2", "id", name)
        for table in ("pay", "noting"):
            assert admin.scan("shop", table, ["salary"], filter=sent).to_pylist() == [
                {"salary": 54321}
            ]
    (asked,) = noting.scans
    assert asked.filter is not None
    assert asked.filter.columns == {"id"}


def test_the_row_id_is_no_column_that_is_called_alike() -> None:
    """`rowid` is the row id in filters, whatever the table calls it (airport §6.2)."""
    decoded = decode_filter(filter_json("id = 2", "id", "rowid"), ["ROWID", "_id"])
    assert decoded is not None
    assert decoded.columns == {"rowid"}


def test_statistics_are_found_whatever_the_case(client: ContractClient) -> None:
    def asked(column: str) -> list[bytes]:
        body = {
            "flight_descriptor": path("lake", "shop", "pay").serialize(),
            "column_name": column,
            "type": "BIGINT",
        }
        return client.action("column_statistics", body, headers("admin"))

    assert asked("ID") == asked("id")


# --------------------------------------------------------------------------------------------- DDL


@pytest.mark.parametrize(
    ("action", "further", "expected"),
    [
        ("remove_column", {"removed_column": "SALARY"}, ("remove", "salary")),
        ("rename_column", {"old_name": "SALARY", "new_name": "Pay"}, ("rename", "salary", "Pay")),
        (
            "rename_column",
            {"old_name": "SALARY", "new_name": "Salary"},
            ("rename", "salary", "Salary"),
        ),
        ("rename_column", {"old_name": "ID", "new_name": "SALARY"}, ("rename", "id", "salary")),
        ("set_default", {"column_name": "SALARY", "expression": "1"}, ("default", "salary")),
        ("set_not_null", {"column_name": "SALARY"}, ("not null", "salary")),
        ("drop_not_null", {"column_name": "SALARY"}, ("null", "salary")),
        (
            "change_column_type",
            {"column_schema": one_column("SALARY"), "expression": "1"},
            ("type", "salary"),
        ),
        ("add_column", {"column_schema": one_column("SALARY")}, ("add", "salary")),
        ("add_column", {"column_schema": one_column("New")}, ("add", "New")),
        ("remove_column", {"removed_column": "Absent"}, ("remove", "Absent")),
        (
            "add_field",
            {"column_path": ["POINT"], "column_schema": one_column("y")},
            ("add field", "point"),
        ),
        ("remove_field", {"column_path": ["POINT", "x"]}, ("remove field", "point", "x")),
        (
            "rename_field",
            {"column_path": ["POINT", "x"], "new_name": "y"},
            ("rename field", "point", "x"),
        ),
    ],
)
def test_tables_are_altered_in_their_own_spelling(
    client: ContractClient,
    noting: Noting,
    action: str,
    further: dict[str, Any],
    expected: tuple[str, ...],
) -> None:
    client.action(action, alter_body(name="noting") | further, headers("admin"))

    assert noting.altered == [expected]


def test_what_duckdb_has_lost_is_not_found_again_in_another_case(
    client: ContractClient, noting: Noting
) -> None:
    body = alter_body(name="noting", column_path=["POINT"], column_schema=one_column("POINT"))
    assert client.action_failure("add_field", body, headers("admin")).code == "FAILED_PRECONDITION"
    assert noting.altered == []


def test_two_columns_that_differ_only_in_case_are_not_made(client: ContractClient) -> None:
    body = create_table_body(TWINS.schema, schema_name="lenient", table_name="t")
    failure = client.action_failure("create_table", body, headers("admin"))

    assert failure.code == "INVALID_ARGUMENT"
    body = add_column_body(name="pay", column_schema=one_column("SALARY"))
    assert client.action_failure("add_column", body, headers("admin")).code == "ALREADY_EXISTS"


# ------------------------------------------------------------------------------------------- rules


def test_of_two_masks_on_a_column_the_first_counts(masked: DuckDBClient) -> None:
    assert masked.scan("shop", "pay", ["salary"]).column(0).to_pylist() == [0, 0]


def test_masks_that_spell_one_column_in_two_ways_are_refused() -> None:
    with pytest.raises(
        BadRequest,
        match=r"masks on LAKE\.shop\.pay spell one column in two ways: salary and SALARY",
    ):
        sp.Policy(
            masks=[
                sp.Mask("lake.shop.pay", "salary"),
                sp.Mask("LAKE.shop.pay", "SALARY", "salary", ("a",)),
            ]
        )
    sp.Policy(
        masks=[
            sp.Mask("lake.shop.pay", "salary"),
            sp.Mask("lake.shop.pay", "salary", "salary", ("a",)),
        ]
    )


@pytest.mark.parametrize("who", ["masked", "filtered"])
def test_a_rule_about_columns_that_differ_only_in_case_shows_nothing(
    server: sp.Server, client: ContractClient, who: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.rows("lake.shop.twins", headers(who))
    assert failure_of(caught.value).code == "PERMISSION_DENIED"
    with DuckDBClient(server.location, "lake", token=who, timeout=60) as duckdb:
        assert "twins" not in duckdb.tables("shop")
    assert len(client.rows("lake.shop.twins", headers("other"))) == 2, (
        "without a rule both columns are there"
    )


def test_a_name_that_may_mean_two_columns_is_refused(client: ContractClient) -> None:
    body = {
        "flight_descriptor": path("lake", "shop", "twins").serialize(),
        "column_name": "Salary",
        "type": "BIGINT",
    }
    assert client.action_failure("column_statistics", body, headers("admin")).code == "NOT_FOUND"


def test_the_tables_own_errors_name_the_column_as_it_spells_it(masked: DuckDBClient) -> None:
    with pytest.raises(ServerError, match="column salary of table pay is masked"):
        masked.update("shop", "pay", {"SALARY": "1"}, "id = 1")
