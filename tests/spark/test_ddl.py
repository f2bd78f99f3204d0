"""CREATE, DROP and RENAME on the lake: schemas, tables and files, and what Spark SQL sees."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.lake_tables import (
    COLUMNS,
    CTX,
    changed_once,
    create,
    drop,
    field,
    fill,
    find,
    folder,
    in_spark,
    insert,
    rows,
    sql_name,
    values,
    version,
)

from sparkport.catalog import (
    AddColumnOptions,
    Constraints,
    CreateSchemaOptions,
    CreateTableOptions,
    DropSchemaOptions,
    OnConflict,
    RemoveFieldOptions,
)
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    NotFound,
    SchemaNotEmpty,
)
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.jvm.session.embedded import DATABASE


@pytest.fixture
def filled(lake: LakeCatalog, namespace: str) -> Callable[[], Any]:
    return fill(lake, namespace)


# ------------------------------------------------------------------------------------ CREATE TABLE


def test_a_new_table_is_what_was_declared(lake, namespace):
    columns = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("small", pa.uint8(), metadata={"default": "7"}),
            pa.field("nested", pa.struct([("x", pa.list_(pa.int16())), ("u", pa.uuid())])),
        ]
    )
    constraints = Constraints(
        not_null=("small",), checks=("(small > 1)",), unique=(("id", "small"),), primary_key=("id",)
    )
    table = create(lake, namespace, "t", columns, comment="of things", constraints=constraints)
    assert table.comment == "of things"
    assert table.arrow_schema.names == ["id", "small", "nested", "rowid"]
    assert [table.arrow_schema.field(name).type for name in ("id", "small")] == [
        pa.int64(),
        pa.uint8(),
    ]
    assert [each.nullable for each in table.arrow_schema][:3] == [False, False, True]
    assert table.arrow_schema.field("small").metadata[b"default"] == b"7"
    assert table.arrow_schema.field("nested").type.field("u").type == pa.uuid()
    assert table.constraints.primary_key == ("id",)
    assert table.constraints.unique == (("id", "small"),)
    assert len(table.constraints.checks) == 1
    assert version(table) == 0
    properties = table.state.metadata.properties
    assert table.state.metadata.format_version == 3
    assert properties["write.delete.mode"] == properties["write.merge.mode"] == "merge-on-read"
    assert in_spark(lake, namespace, "t") == []


def test_settings_add_table_properties(lake, namespace, tmp_path):
    settings = LakeSettings(table_properties={"write.parquet.compression-codec": "snappy"})
    with LakeCatalog(tmp_path / "other", name="other_properties", settings=settings) as other:
        other.create_schema(CTX, "s", CreateSchemaOptions())
        properties = create(other, "s", "t").state.metadata.properties
        assert properties["write.parquet.compression-codec"] == "snappy"


def made_at_once(*lakes_and_names: tuple[LakeCatalog, str]) -> list[str]:
    """The answers to clients that create a table in schema `s` at the same time."""
    together = Barrier(len(lakes_and_names))

    def make(lake: LakeCatalog, name: str) -> str:
        together.wait(timeout=60)
        try:
            create(lake, "s", name)
        except AlreadyExists as error:
            return str(error)
        return "made"

    with ThreadPoolExecutor() as threads:
        answers = [threads.submit(make, *each) for each in lakes_and_names]
        return sorted(answer.result(timeout=60) for answer in answers)


def test_of_a_table_that_servers_make_at_once_one_is_left(lake, tmp_path):
    with (
        LakeCatalog(tmp_path, name="made_twice") as first,
        LakeCatalog(tmp_path, name="made_twice") as second,
    ):
        first.create_schema(CTX, "s", CreateSchemaOptions())

        assert made_at_once((first, "t"), (second, "t")) == ["made", "table s.t exists already"]
        table = find(first, "s", "t")
        place = folder(table)
        assert list(place.parent.iterdir()) == [place]


def test_names_that_differ_in_case_are_not_given_at_once(lake, tmp_path):
    with LakeCatalog(tmp_path, name="made_twice") as other:
        other.create_schema(CTX, "s", CreateSchemaOptions())
        answers = made_at_once((other, "t"), (other, "T"), (other, "t"))

        schema: Any = other.schema(CTX, "s")
        (name,) = (table.name for table in schema.tables(CTX))
        assert answers == ["made", *[f"table s.{name} exists already"] * 2]


@pytest.mark.parametrize("on_conflict", [OnConflict.ERROR, OnConflict.IGNORE, OnConflict.REPLACE])
def test_a_name_is_taken_whatever_its_case(lake, namespace, on_conflict):
    create(lake, namespace, "Things")
    if on_conflict is OnConflict.ERROR:
        with pytest.raises(AlreadyExists, match=rf"table {namespace}\.Things exists already"):
            create(lake, namespace, "things")
    else:
        other = pa.schema([("other", pa.date32())])
        table = create(lake, namespace, "things", other, on_conflict=on_conflict)
        assert table.name == "Things"
        assert table.arrow_schema.names[0] == (
            "id" if on_conflict is OnConflict.IGNORE else "other"
        )


def test_replace_is_one_change_and_forgets_rows_and_constraints(lake, namespace):
    constraints = Constraints(checks=("(v > 0)",), primary_key=("id",))
    columns = COLUMNS.set(1, pa.field("v", pa.uint16(), metadata={"default": "1"}))
    create(lake, namespace, "t", columns, constraints=constraints, comment="old")
    insert(lake, namespace, "t", "(1, 10, 'a')")
    new = pa.schema([("v", pa.int32()), ("extra", pa.uint8())])
    table = changed_once(
        lambda: find(lake, namespace, "t"),
        lambda _: create(lake, namespace, "t", new, on_conflict=OnConflict.REPLACE),
    )
    assert [(each.name, each.type) for each in table.state.definition.columns] == [
        ("v", pa.int32()),
        ("extra", pa.uint8()),
    ]
    assert not table.constraints
    assert table.comment == ""
    assert table.arrow_schema.field("v").metadata is None
    assert rows(table) == []
    insert(lake, namespace, "t", "(5, 6)")
    assert values(find(lake, namespace, "t"), "v", "extra") == [(5, 6)]


def test_a_view_is_not_replaced_by_a_table(lake, namespace):
    lake.spark.sql(f"CREATE VIEW {sql_name(lake, namespace, 'seen')} AS SELECT 1 AS x")
    with pytest.raises(
        AlreadyExists,
        match=f"view {namespace}.seen exists already, and cannot be replaced: drop it first",
    ):
        create(lake, namespace, "seen", on_conflict=OnConflict.REPLACE)
    with pytest.raises(AlreadyExists, match="exists already"):
        create(lake, namespace, "seen")


def test_a_table_that_another_engine_makes_meanwhile_is_not_overwritten(
    lake, namespace, monkeypatch
):
    lake.spark.sql(f"CREATE TABLE {sql_name(lake, namespace, 't')} (theirs INT) USING iceberg")
    monkeypatch.setattr(
        "sparkport.spark.ddl.create_table.find_entry", lambda *_: None
    )  # it was not there when we looked
    with pytest.raises(AlreadyExists, match=f"table {namespace}.t exists already"):
        lake.schema(CTX, namespace).create_table(CTX, "t", COLUMNS, CreateTableOptions())
    table = create(lake, namespace, "t", on_conflict=OnConflict.IGNORE)
    assert table.arrow_schema.names[0] == "theirs"


def test_a_schema_must_exist(lake, namespace):
    schema = lake.schema(CTX, namespace)
    lake.drop_schema(CTX, namespace, DropSchemaOptions())
    with pytest.raises(NotFound, match=f"schema {namespace} does not exist"):
        schema.create_table(CTX, "t", COLUMNS, CreateTableOptions())


STRANGE = [
    "it's",
    'two "quotes"',
    "a.b.c",
    "übung 数",
    " spaced ",
    "select",
    "back`tick",
    "../../up",
    "a/b",
    "%41 ?#",
    "\\n",
    "_",
]


@pytest.mark.parametrize("name", STRANGE)
def test_strange_names(lake, namespace, name):
    columns = pa.schema(
        [pa.field(name, pa.int16()), ("s", pa.struct([(name, pa.int32()), ("other", pa.int32())]))]
    )
    create(lake, namespace, name, columns, constraints=Constraints(primary_key=(name,)))
    quoted = name.replace("`", "``")
    insert(lake, namespace, quoted, "(1, named_struct('x', 1, 'y', 2))")
    table = find(lake, namespace, name)
    table.add_column(CTX, field(f"{name}2", pa.uint8(), default="3"), AddColumnOptions())
    table.rename_column(CTX, name, f"{name}3")
    table.rename_field(CTX, ["s", name], f"{name}4")
    table.change_column_type(CTX, field(f"{name}3", pa.string()), "")
    table = find(lake, namespace, name)
    assert values(table, f"{name}3", f"{name}2") == [("1", 3)]
    assert values(table, "s") == [{f"{name}4": 1, "other": 2}]
    table.remove_field(CTX, ["s", f"{name}4"], RemoveFieldOptions())
    assert values(find(lake, namespace, name), "s") == [{"other": 2}]
    place = folder(table)
    assert place.exists()
    assert place.parent.parent == next(
        parent for parent in place.parents if (parent / "catalog.db").exists()
    )
    renamed = lake.schema(CTX, namespace).rename_table(CTX, name, f"{name}!")
    assert renamed.name == f"{name}!"
    drop(lake, namespace, f"{name}!")
    assert not place.exists()


# -------------------------------------------------------------------------------------- DROP TABLE


def test_drop_leaves_no_files(lake, namespace, filled):
    place = folder(filled())
    (place / "data" / "left-by-a-writer-that-failed.parquet").write_bytes(b"")
    drop(lake, namespace, "t")
    assert not place.exists()
    assert find(lake, namespace, "t") is None
    with pytest.raises(NotFound, match=f"table {namespace}.t does not exist"):
        drop(lake, namespace, "t")
    drop(lake, namespace, "t", ignore_not_found=True)


def test_files_are_kept_when_asked(lake, tmp_path):
    with LakeCatalog(
        tmp_path / "kept", name="kept", settings=LakeSettings(keep_files=True)
    ) as kept:
        kept.create_schema(CTX, "s", CreateSchemaOptions())
        place = folder(create(kept, "s", "t"))
        drop(kept, "s", "t")
        assert list(place.rglob("*.metadata.json"))


def test_a_table_that_took_the_name_of_a_renamed_one_keeps_its_files(lake, namespace, filled):
    lake.schema(CTX, namespace).rename_table(CTX, "t", "u")
    create(lake, namespace, "t")
    insert(lake, namespace, "t", "(7, 7, 'new')")
    old, new = folder(find(lake, namespace, "u")), folder(find(lake, namespace, "t"))
    assert old != new
    drop(lake, namespace, "u")
    assert not old.exists()
    assert values(find(lake, namespace, "t"), "id") == [7]


def test_a_table_of_another_engine_loses_only_its_own_files(lake, namespace):
    name = sql_name(lake, namespace, "theirs")
    lake.spark.sql(f"CREATE TABLE {name} (id INT) USING iceberg")
    insert(lake, namespace, "theirs", "(1)")
    place = folder(find(lake, namespace, "theirs"))
    stranger = place / "data" / "not-of-this-table.parquet"
    stranger.write_bytes(b"")
    drop(lake, namespace, "theirs")
    assert [path for path in place.rglob("*") if path.is_file()] == [stranger]


def test_a_table_of_another_engine_goes_with_its_folder(lake, namespace):
    lake.spark.sql(f"CREATE TABLE {sql_name(lake, namespace, 'theirs')} (id INT) USING iceberg")
    insert(lake, namespace, "theirs", "(1)")
    place = folder(find(lake, namespace, "theirs"))
    drop(lake, namespace, "theirs")
    assert not place.exists()


def test_imported_files_are_not_the_tables_own(lake, namespace, tmp_path):
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "mine.parquet")
    lake.spark.sql(f"CREATE TABLE {sql_name(lake, namespace, 'importing')} (id INT) USING iceberg")
    lake.spark.sql(
        f"CALL `{lake.spark_catalog}`.system.add_files(table => '{namespace}.importing',"
        f" source_table => '`parquet`.`{tmp_path}`')"
    ).collect()
    drop(lake, namespace, "importing")
    assert (tmp_path / "mine.parquet").exists()


def test_files_that_two_tables_share_stay(lake, namespace, filled):
    location = filled().state.metadata_location
    lake.spark.sql(
        f"CALL `{lake.spark_catalog}`.system.register_table('{namespace}.twin', '{location}')"
    ).collect()
    drop(lake, namespace, "twin")
    assert values(filled(), "id") == [1, 2, 3]
    lake.spark.sql(
        f"ALTER TABLE {sql_name(lake, namespace, 't')} SET TBLPROPERTIES ('gc.enabled' = 'false')"
    )
    place = folder(filled())
    drop(lake, namespace, "t")
    assert list(place.rglob("*.parquet"))


def test_a_table_whose_metadata_are_gone_can_be_dropped(lake, namespace, filled):
    for path in folder(filled()).rglob("*.metadata.json"):
        path.unlink()
    drop(lake, namespace, "t")
    assert find(lake, namespace, "t") is None


def test_a_view_is_dropped_like_a_table(lake, namespace):
    lake.spark.sql(f"CREATE VIEW {sql_name(lake, namespace, 'seen')} AS SELECT 1 AS x")
    lake.spark.sql(f"CREATE OR REPLACE VIEW {sql_name(lake, namespace, 'seen')} AS SELECT 2 AS x")
    location = lake._lake.entry(find(lake, namespace, "seen").entry.identifier).location
    place = Path(re.sub("^file:/+", "/", location)).parent.parent
    assert place.exists()
    drop(lake, namespace, "seen")
    assert find(lake, namespace, "seen") is None
    assert not place.exists()


def test_rename_table(lake, namespace, filled):
    create(lake, namespace, "other")
    schema = lake.schema(CTX, namespace)
    with pytest.raises(AlreadyExists, match=f"table {namespace}.other exists already"):
        schema.rename_table(CTX, "t", "OTHER")
    with pytest.raises(NotFound, match=f"table {namespace}.missing does not exist"):
        schema.rename_table(CTX, "missing", "x")
    with pytest.raises(BadRequest, match="needs a name"):
        schema.rename_table(CTX, "t", "")
    before = version(filled())
    table = schema.rename_table(CTX, "t", "T")
    assert (table.name, version(table)) == ("T", before)
    assert values(table, "id") == [1, 2, 3]


# ----------------------------------------------------------------------------------------- schemas


def test_schemas_come_and_go(lake):
    lake.create_schema(CTX, "Sales", CreateSchemaOptions("what we sold", {"team": "x"}))
    schema = lake.schema(CTX, "Sales")
    assert (schema.comment, schema.tags) == ("what we sold", {"team": "x"})
    with pytest.raises(AlreadyExists, match="schema Sales exists already"):
        lake.create_schema(CTX, "sales", CreateSchemaOptions())
    table = create(lake, "Sales", "t")
    lake.spark.sql(f"CREATE VIEW `{lake.spark_catalog}`.`Sales`.seen AS SELECT 1 AS x")
    with pytest.raises(SchemaNotEmpty, match="schema Sales still contains tables: drop them first"):
        lake.drop_schema(CTX, "Sales", DropSchemaOptions())
    lake.drop_schema(CTX, "Sales", DropSchemaOptions(cascade=True))
    assert lake.schema(CTX, "Sales") is None
    assert not folder(table).parent.exists()
    with pytest.raises(NotFound, match="schema Sales does not exist"):
        lake.drop_schema(CTX, "Sales", DropSchemaOptions())
    lake.drop_schema(CTX, "Sales", DropSchemaOptions(ignore_not_found=True))


def test_a_schema_that_another_server_makes_at_the_same_time_exists_already(lake, tmp_path):
    with (
        LakeCatalog(tmp_path, name="made_twice") as other,
        closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as elsewhere,
        ThreadPoolExecutor() as threads,
    ):
        elsewhere.execute("BEGIN IMMEDIATE")
        elsewhere.execute(
            "INSERT INTO iceberg_namespace_properties VALUES ('made_twice', 'a', 'exists', 'true')"
        )
        ours = threads.submit(other.create_schema, CTX, "a", CreateSchemaOptions())
        with pytest.raises(TimeoutError):
            ours.result(timeout=1)  # it has seen that there is none, and waits for its turn
        elsewhere.execute("COMMIT")
        with pytest.raises(AlreadyExists, match="schema a exists already"):
            ours.result(timeout=60)


def test_nested_namespaces(lake):
    lake.create_schema(CTX, "outer", CreateSchemaOptions())
    lake.create_schema(CTX, "outer.inner", CreateSchemaOptions())
    lake.create_schema(CTX, "outer.inner.most", CreateSchemaOptions())
    place = folder(create(lake, "outer.inner.most", "t"))
    assert (
        lake.spark.sql(f"SELECT * FROM `{lake.spark_catalog}`.outer.inner.most.t").collect() == []
    )
    with pytest.raises(
        SchemaNotEmpty, match=r"schema outer still contains schema outer\.inner: drop it first"
    ):
        lake.drop_schema(CTX, "outer", DropSchemaOptions())
    lake.drop_schema(CTX, "outer", DropSchemaOptions(cascade=True))
    assert not [schema.name for schema in lake.schemas(CTX) if schema.name.startswith("outer")]
    assert not place.parent.parent.parent.exists()


@pytest.mark.parametrize("name", ["", ".", "a..b", ".a", "a.", "nul\0"])
def test_names_that_cannot_be_schemas(lake, name):
    with pytest.raises(BadRequest):
        lake.create_schema(CTX, name, CreateSchemaOptions())


@pytest.mark.parametrize("name", [name for name in STRANGE if "." not in name])
def test_strange_names_of_schemas(lake, name):
    lake.create_schema(CTX, name, CreateSchemaOptions())
    create(lake, name, "t")
    assert (
        lake.spark.sql(f"SELECT * FROM {sql_name(lake, name.replace('`', '``'), 't')}").collect()
        == []
    )
    lake.drop_schema(CTX, name, DropSchemaOptions(cascade=True))
    assert lake.schema(CTX, name) is None


def test_private_tags_are_refused(lake):
    with pytest.raises(BadRequest, match="a tag called Location"):
        lake.create_schema(CTX, "tagged", CreateSchemaOptions(tags={"Location": "/etc"}))
