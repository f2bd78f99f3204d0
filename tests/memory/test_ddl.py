"""CREATE, DROP and RENAME of schemas and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from tests.memory.statements import CTX, ids_of, insert, rows_of, update

from sparkport.catalog import (
    AddColumnOptions,
    Constraints,
    Context,
    CreateSchemaOptions,
    CreateTableOptions,
    DropSchemaOptions,
    DropTableOptions,
    FunctionSignature,
    OnConflict,
    ScalarFunction,
    ScanOptions,
    Table,
    TableFunction,
)
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    ConstraintViolation,
    NotFound,
    SchemaNotEmpty,
    Unsupported,
)
from sparkport.memory import MemoryCatalog, MemorySchema, MemoryTable

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog("memory")


@pytest.fixture
def schema(catalog: MemoryCatalog) -> MemorySchema:
    return catalog.add_schema("s", comment="for tests", tags={"a": "b"})


class Constant(Table):
    """A table of another kind."""

    name = "constant"
    arrow_schema = pa.schema([("n", pa.int64())])

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [42]})


class Twice(ScalarFunction):
    name = "twice"
    signature = FunctionSignature()

    def execute(self, ctx: Context, arguments: pa.RecordBatch) -> pa.Array:
        raise NotImplementedError


class Numbers(TableFunction):
    name = "numbers"
    signature = FunctionSignature()

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        raise NotImplementedError

    def execute(self, ctx: Context, parameters: Sequence[Any], options: ScanOptions) -> Any:
        raise NotImplementedError


def test_a_schema_is_created_with_comment_and_tags(catalog: MemoryCatalog) -> None:
    made = catalog.create_schema(CTX, "new", CreateSchemaOptions(comment="c", tags={"k": "v"}))
    assert (made.name, made.comment, made.tags) == ("new", "c", {"k": "v"})
    assert catalog.schema(CTX, "new") is made
    assert [schema.name for schema in catalog.schemas(CTX)] == ["new"]
    assert catalog.schema(CTX, "NEW") is None


def test_a_schema_that_exists_is_not_created_again_whatever_its_case(
    catalog: MemoryCatalog,
) -> None:
    catalog.create_schema(CTX, "new", CreateSchemaOptions())
    with pytest.raises(AlreadyExists):
        catalog.create_schema(CTX, "NEW", CreateSchemaOptions())
    with pytest.raises(BadRequest):
        catalog.create_schema(CTX, "", CreateSchemaOptions())


def test_only_an_empty_schema_is_dropped_without_cascade(
    catalog: MemoryCatalog, schema: MemorySchema
) -> None:
    table = schema.create_table(CTX, "t", COLUMNS, CreateTableOptions())
    assert isinstance(table, MemoryTable)
    with pytest.raises(SchemaNotEmpty, match="schema s still contains tables"):
        catalog.drop_schema(CTX, "s", DropSchemaOptions())
    catalog.drop_schema(CTX, "s", DropSchemaOptions(cascade=True))
    assert catalog.schemas(CTX) == ()
    with pytest.raises(Conflict, match="dropped"):
        insert(table, [{"id": 1, "v": "x"}])
    with pytest.raises(NotFound):
        schema.create_table(CTX, "u", COLUMNS, CreateTableOptions())


def test_dropping_a_schema_that_does_not_exist(catalog: MemoryCatalog) -> None:
    catalog.drop_schema(CTX, "none", DropSchemaOptions(ignore_not_found=True))
    with pytest.raises(NotFound, match="schema none does not exist"):
        catalog.drop_schema(CTX, "none", DropSchemaOptions())


def test_a_created_table_is_empty_and_has_a_row_id(schema: MemorySchema) -> None:
    made = schema.create_table(CTX, "t", COLUMNS, CreateTableOptions(comment="mine"))
    assert schema.table(CTX, "t") is made
    assert schema.table(CTX, "T") is None
    assert made.comment == "mine"
    assert made.arrow_schema is not None
    assert made.arrow_schema.names == ["id", "v", "rowid"]


def test_on_conflict_error_ignore_and_replace(schema: MemorySchema) -> None:
    first = schema.create_table(CTX, "t", COLUMNS, CreateTableOptions())
    assert isinstance(first, MemoryTable)
    insert(first, [{"id": 1, "v": "x"}])
    with pytest.raises(AlreadyExists, match=r"table s\.t exists already"):
        schema.create_table(CTX, "T", COLUMNS, CreateTableOptions())
    other = pa.schema([("n", pa.int8())])
    assert (
        schema.create_table(CTX, "T", other, CreateTableOptions(on_conflict=OnConflict.IGNORE))
        is first
    )
    new = schema.create_table(CTX, "t", other, CreateTableOptions(on_conflict=OnConflict.REPLACE))
    assert isinstance(new, MemoryTable)
    assert schema.tables(CTX) == (new,)
    assert (rows_of(new), new.current.number) == ([], 0)
    with pytest.raises(Conflict, match="dropped"):
        insert(first, [{"id": 2, "v": "y"}])


def test_a_partition_of_a_replaced_table_is_refused(schema: MemorySchema) -> None:
    first = schema.create_table(CTX, "t", COLUMNS, CreateTableOptions())
    assert isinstance(first, MemoryTable)
    insert(first, [{"id": 1, "v": "x"}])
    (partition,) = first.partitions(CTX, ScanOptions())
    new = schema.create_table(CTX, "t", COLUMNS, CreateTableOptions(on_conflict=OnConflict.REPLACE))
    with pytest.raises(Conflict):
        new.scan(CTX, ScanOptions(partition=partition))


def test_an_enum_is_kept_as_plain_values(schema: MemorySchema) -> None:
    columns = pa.schema([("e", pa.dictionary(pa.uint8(), pa.string()))])
    table = schema.create_table(CTX, "t", columns, CreateTableOptions())
    assert table.arrow_schema is not None
    assert table.arrow_schema.field("e").type == pa.string()


def test_a_schema_belongs_to_one_catalog(catalog: MemoryCatalog, schema: MemorySchema) -> None:
    with pytest.raises(BadRequest, match="in a catalog already"):
        MemoryCatalog("other").add(schema)
    with pytest.raises(AlreadyExists):
        catalog.add(schema)


def test_a_renamed_table_keeps_rows_row_ids_and_history(schema: MemorySchema) -> None:
    table = schema.create_table(
        CTX, "t", COLUMNS, CreateTableOptions(constraints=Constraints(checks=("t.id > 0",)))
    )
    assert isinstance(table, MemoryTable)
    insert(table, [{"id": 1, "v": "x"}])
    assert schema.rename_table(CTX, "t", "u").name == "u"
    assert schema.table(CTX, "t") is None
    assert schema.table(CTX, "u") is table
    update(table, [{"id": 2, "rowid": 0}])
    assert rows_of(table) == [{"id": 2, "v": "x"}]
    assert rows_of(table, version=1) == [{"id": 1, "v": "x"}]
    assert ids_of(table) == [0]
    with pytest.raises(ConstraintViolation, match="on table u"):
        insert(table, [{"id": 0, "v": "x"}])
    schema.rename_table(CTX, "u", "U")
    assert schema.table(CTX, "U") is table


def test_a_table_is_not_renamed_to_a_name_that_is_taken(schema: MemorySchema) -> None:
    for name in ("t", "u"):
        schema.create_table(CTX, name, COLUMNS, CreateTableOptions())
    with pytest.raises(AlreadyExists):
        schema.rename_table(CTX, "t", "U")
    with pytest.raises(NotFound):
        schema.rename_table(CTX, "nothing", "w")
    with pytest.raises(BadRequest):
        schema.rename_table(CTX, "t", "")


def test_the_catalog_version_rises_with_every_change(catalog: MemoryCatalog) -> None:
    numbers = [catalog.version(CTX).number]

    def note() -> None:
        numbers.append(catalog.version(CTX).number)

    schema = catalog.create_schema(CTX, "s", CreateSchemaOptions())
    note()
    assert isinstance(schema, MemorySchema)
    table = schema.create_table(CTX, "t", COLUMNS, CreateTableOptions())
    note()
    assert isinstance(table, MemoryTable)
    table.add_column(CTX, pa.schema([("n", pa.int64())]), AddColumnOptions())
    note()
    schema.rename_table(CTX, "t", "u")
    note()
    schema.add_scalar_function(Twice())
    note()
    insert(table, [{"id": 1, "v": "x", "n": 1}])
    note()
    table.add_column(
        CTX, pa.schema([("n", pa.int64())]), AddColumnOptions(if_column_not_exists=True)
    )
    assert catalog.version(CTX).number == numbers[-1], "nothing changed"
    schema.drop_table(CTX, "u", DropTableOptions())
    note()
    catalog.drop_schema(CTX, "s", DropSchemaOptions())
    note()
    assert all(before < after for before, after in pairwise(numbers))
    assert not catalog.version(CTX).fixed


def test_tables_of_other_kinds_and_functions_live_in_a_schema_too(schema: MemorySchema) -> None:
    constant, twice, numbers = Constant(), Twice(), Numbers()
    schema.add_table(constant)
    schema.add_scalar_function(twice)
    schema.add_table_function(numbers)
    assert schema.table(CTX, "constant") is constant
    assert list(schema.scalar_functions(CTX)) == [twice]
    assert list(schema.table_functions(CTX)) == [numbers]
    with pytest.raises(AlreadyExists):
        schema.add_table(Constant())
    with pytest.raises(Unsupported):
        schema.rename_table(CTX, "constant", "c")
    schema.drop_table(CTX, "constant", DropTableOptions())
    assert schema.tables(CTX) == ()
