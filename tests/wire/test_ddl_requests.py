"""DDL requests in the client's spelling and the contracts', and the errors of wrong requests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparkport.catalog.constraints import Constraints
from sparkport.catalog.ddl import OnConflict
from sparkport.errors import BadRequest
from sparkport.wire import ddl
from sparkport.wire.constraints import parse_key
from sparkport.wire.packing import pack

COLUMNS = pa.schema(
    [("id", pa.int64()), ("Name", pa.string()), ("u", pa.int32()), ('odd,"name', pa.date32())]
)


def message(arrow_schema: pa.Schema) -> bytes:
    data: bytes = arrow_schema.serialize().to_pybytes()
    return data


def one_field(name: str = "x", data_type: pa.DataType | None = None) -> bytes:
    return message(pa.schema([(name, data_type or pa.int32())]))


def create_table(**fields: Any) -> ddl.CreateTable:
    body = {
        "catalog_name": "c",
        "schema_name": "s",
        "table_name": "t",
        "arrow_schema": message(COLUMNS),
        **fields,
    }
    return ddl.decode_create_table(pack(body))


# ----------------------------------------------------------------------------------------- schemas


@pytest.mark.parametrize(
    ("extra", "on_conflict"),
    [
        ({}, None),
        ({"on_conflict": ""}, None),
        ({"on_conflict": "ignore"}, OnConflict.IGNORE),
        ({"on_conflict": "ERROR"}, OnConflict.ERROR),
        ({"if_not_exists": True}, OnConflict.IGNORE),
        ({"if_not_exists": False}, OnConflict.ERROR),
        ({"on_conflict": "error", "if_not_exists": True}, OnConflict.ERROR),
    ],
)
def test_create_schema_honours_a_conflict_rule_only_where_there_is_one(extra, on_conflict) -> None:
    request = ddl.decode_create_schema(pack({"catalog_name": "c", "schema": "s", **extra}))
    assert request == ddl.CreateSchema("c", "s", "", {}, on_conflict)


def test_create_schema_takes_comment_and_tags() -> None:
    body = pack({"catalog_name": "", "schema": "s", "comment": "about", "tags": {"k": "v"}})
    assert ddl.decode_create_schema(body) == ddl.CreateSchema("", "s", "about", {"k": "v"})


def test_create_schema_may_leave_out_all_but_the_name() -> None:
    assert ddl.decode_create_schema(pack({"schema": "s"})) == ddl.CreateSchema("", "s")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"catalog_name": "c"}, "create_schema: the field 'schema' is missing"),
        ({"schema": ""}, "create_schema: the field 'schema' must not be empty"),
        ({"schema": "s", "tags": ["k"]}, "the field 'tags' must be a map, not a list"),
        ({"schema": "s", "tags": {"k": 1}}, "the field 'k' must be text, not an integer"),
        (
            {"schema": "s", "on_conflict": "merge"},
            "on_conflict must be error, ignore or replace, not 'merge'",
        ),
    ],
)
def test_a_wrong_create_schema_is_refused(body, problem) -> None:
    with pytest.raises(BadRequest) as refusal:
        ddl.decode_create_schema(pack(body))
    assert problem in refusal.value.message


@pytest.mark.parametrize(
    "names",
    [
        {"schema_name": "", "name": "s"},
        {"schema_name": "s", "name": "s"},
        {"schema_name": "s", "name": ""},
        {"schema_name": "s"},
    ],
)
def test_drop_schema_finds_the_name_in_either_field(names) -> None:
    body = pack({"type": "schema", "catalog_name": "c", **names, "ignore_not_found": True})
    assert ddl.decode_drop_schema(body) == ddl.DropSchema("c", "s", ignore_not_found=True)


def test_drop_schema_without_any_name_is_refused() -> None:
    with pytest.raises(BadRequest, match="'schema_name' must not be empty"):
        ddl.decode_drop_schema(pack({"schema_name": "", "name": ""}))


def test_drop_table_needs_schema_and_name() -> None:
    body = {
        "type": "table",
        "catalog_name": "c",
        "schema_name": "s",
        "name": "t",
        "ignore_not_found": False,
    }
    assert ddl.decode_drop_table(pack(body)) == ddl.DropTable("c", "s", "t", False)
    for key in ("schema_name", "name"):
        with pytest.raises(BadRequest, match=f"drop_table: the field '{key}' must not be empty"):
            ddl.decode_drop_table(pack({**body, key: ""}))


# ------------------------------------------------------------------------------------ CREATE TABLE


def test_create_table_in_the_shortest_form_of_the_contract() -> None:
    request = create_table()
    assert (request.catalog, request.schema, request.name) == ("c", "s", "t")
    assert request.arrow_schema.equals(COLUMNS)
    assert request.on_conflict is OnConflict.ERROR
    assert request.constraints == Constraints()


@pytest.mark.parametrize("rule", list(OnConflict))
def test_create_table_knows_all_conflict_rules(rule: OnConflict) -> None:
    assert create_table(on_conflict=rule.value).on_conflict is rule


def test_columns_that_are_not_null_are_not_nullable() -> None:
    request = create_table(not_null_constraints=[2, 0])
    assert request.constraints.not_null == ("id", "u")
    assert [field.nullable for field in request.arrow_schema] == [False, True, False, True]


def test_a_field_that_arrives_as_not_nullable_counts_as_not_null() -> None:
    sent = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())], {"k": "v"})
    request = create_table(arrow_schema=message(sent))
    assert request.constraints.not_null == ("id",)
    assert request.arrow_schema.equals(sent, check_metadata=True)


def test_uniqueness_is_merged_from_all_its_spellings() -> None:
    request = create_table(
        unique_constraints=[0],
        unique_columns=["u", "ID"],
        extra_constraints=['UNIQUE(u, "name")', "unique ( id )", 'UNIQUE("odd,""name", id)'],
    )
    assert request.constraints.unique == (("id",), ("u",), ("Name", "u"), ("id", 'odd,"name'))


@pytest.mark.parametrize(
    "spelling",
    [
        {"primary_key_columns": ["u"]},
        {"multi_key_primary_keys": ["u"]},
        {"extra_constraints": ["PRIMARY KEY(u)"]},
        {"primary_key_columns": ["U"], "extra_constraints": ["primary  key (u)"]},
    ],
)
def test_a_primary_key_is_found_in_every_spelling_and_is_not_null(spelling) -> None:
    constraints = create_table(**spelling).constraints
    assert constraints == Constraints(not_null=("u",), primary_key=("u",))


def test_a_composite_primary_key_comes_in_table_order_since_its_own_is_lost() -> None:
    assert create_table(multi_key_primary_keys=["u", "id"]).constraints.primary_key == ("id", "u")


def test_checks_are_kept_as_they_are() -> None:
    checks = ["(u > 0)", "((u)::VARCHAR <> 'é')"]
    assert create_table(check_constraints=checks).constraints.checks == tuple(checks)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"table_name": ""}, "the field 'table_name' must not be empty"),
        ({"table_name": None}, "the field 'table_name' is missing"),
        ({"schema_name": None}, "the field 'schema_name' is missing"),
        ({"table_name": 5}, "the field 'table_name' must be text, not an integer"),
        ({"table_name": "a\0b"}, "the field 'table_name' must not contain a NUL character"),
        ({"arrow_schema": None}, "the field 'arrow_schema' is missing"),
        ({"arrow_schema": b""}, "create_table: arrow_schema is not a readable Arrow schema"),
        ({"arrow_schema": b"garbage"}, "create_table: arrow_schema is not a readable Arrow schema"),
        ({"on_conflict": "merge"}, "on_conflict must be error, ignore or replace"),
        (
            {"not_null_constraints": [4]},
            "a constraint is on column number 4, but the last one is number 3",
        ),
        (
            {"unique_constraints": [2**64 - 1]},
            "a constraint is on column number 18446744073709551615",
        ),
        ({"not_null_constraints": [-1]}, "the field 'not_null_constraints' holds"),
        ({"not_null_constraints": ["id"]}, "must hold integers, not text"),
        (
            {"unique_columns": ["nope"]},
            "a constraint is on the column nope, which the table does not have",
        ),
        ({"primary_key_columns": ["nope"]}, "a constraint is on the column nope"),
        ({"extra_constraints": ["UNIQUE(nope)"]}, "a constraint is on the column nope"),
        ({"extra_constraints": ["FOREIGN KEY (id) REFERENCES x(id)"]}, "cannot be read"),
        (
            {"primary_key_columns": ["id"], "multi_key_primary_keys": ["u", "name"]},
            "only one primary key",
        ),
        ({"check_constraints": "u > 0"}, "the field 'check_constraints' must be a list, not text"),
    ],
)
def test_a_wrong_create_table_is_refused_with_its_problem(fields, problem) -> None:
    with pytest.raises(BadRequest) as refusal:
        create_table(**fields)
    assert problem in refusal.value.message


@pytest.mark.parametrize(
    ("names", "problem"),
    [(["a", "A"], "there are two columns called A"), (["a", ""], "column 2 has no name")],
)
def test_columns_need_names_of_their_own(names, problem) -> None:
    with pytest.raises(BadRequest, match=problem):
        create_table(arrow_schema=message(pa.schema([(name, pa.int32()) for name in names])))


def test_letters_outside_ascii_differ_by_case_as_they_do_in_duckdb() -> None:
    sent = pa.schema([("ä", pa.int32()), ("Ä", pa.int32())])
    assert create_table(arrow_schema=message(sent), unique_columns=["Ä"]).constraints.unique == (
        ("Ä",),
    )


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("UNIQUE(a)", (False, ("a",))),
        (" unique ( a , b_2 ) ", (False, ("a", "b_2"))),
        ('UNIQUE("a", "b c", "d""e", "f,g", ")")', (False, ("a", "b c", 'd"e', "f,g", ")"))),
        ("UNIQUE(é, _x$1)", (False, ("é", "_x$1"))),
        ("PRIMARY KEY(a, b)", (True, ("a", "b"))),
    ],
)
def test_keys_are_read_as_sql_writes_them(text, key) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "UNIQUE",
            "UNIQUE()",
            "UNIQUE(a",
            "UNIQUE a)",
            "UNIQUE(a,)",
            "UNIQUE(,a)",
            "UNIQUE(a b)",
            "UNIQUE(1a)",
        ),
        *(
            'UNIQUE("a)',
            'UNIQUE("")',
            "UNIQUE(a) x",
            "UNIQUE(a); DROP TABLE t",
            "CHECK(a > 0)",
            "UNIQUE(lower(a))",
        ),
    ],
)
def test_what_is_no_key_is_refused(text) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        parse_key(text)


# ------------------------------------------------------------------------------------------- ALTER

TABLE = {"catalog": "c", "schema": "s", "name": "t", "ignore_not_found": True}
NAMED = ("c", "s", "t", True)
FIELD = pa.schema([("x", pa.int32())])

ALTERS: list[tuple[Any, dict[str, Any], ddl.Alter]] = [
    (ddl.decode_add_column, {"column_schema": one_field()}, ddl.AddColumn(*NAMED, FIELD)),
    (
        ddl.decode_add_column,
        {"column_schema": one_field(), "if_column_not_exists": True},
        ddl.AddColumn(*NAMED, FIELD, if_column_not_exists=True),
    ),
    (ddl.decode_remove_column, {"removed_column": "x"}, ddl.RemoveColumn(*NAMED, "x")),
    (
        ddl.decode_remove_column,
        {"removed_column": "x", "if_column_exists": True, "cascade": True},
        ddl.RemoveColumn(*NAMED, "x", if_column_exists=True, cascade=True),
    ),
    (
        ddl.decode_rename_column,
        {"old_name": "a", "new_name": "b"},
        ddl.RenameColumn(*NAMED, "a", "b"),
    ),
    (ddl.decode_rename_table, {"new_table_name": "b"}, ddl.RenameTable(*NAMED, "b")),
    (
        ddl.decode_set_default,
        {"column_name": "x", "expression": "(5 + 1)"},
        ddl.SetDefault(*NAMED, "x", "(5 + 1)"),
    ),
    (ddl.decode_set_not_null, {"column_name": "x"}, ddl.SetNotNull(*NAMED, "x")),
    (ddl.decode_drop_not_null, {"column_name": "x"}, ddl.DropNotNull(*NAMED, "x")),
    (
        ddl.decode_change_column_type,
        {"column_schema": one_field(), "expression": "CAST(x AS INTEGER)"},
        ddl.ChangeColumnType(*NAMED, FIELD, "CAST(x AS INTEGER)"),
    ),
    (
        ddl.decode_add_field,
        {"column_path": ["st", "b"], "column_schema": one_field(), "if_field_not_exists": True},
        ddl.AddField(*NAMED, ("st", "b"), FIELD, if_field_not_exists=True),
    ),
    (
        ddl.decode_remove_field,
        {"column_path": ["st", "b"], "if_column_exists": True, "cascade": False},
        ddl.RemoveField(*NAMED, ("st", "b"), if_field_exists=True),
    ),
    (
        ddl.decode_rename_field,
        {"column_path": ["st", "b"], "new_name": "d"},
        ddl.RenameField(*NAMED, ("st", "b"), "d"),
    ),
    (
        ddl.decode_add_constraint,
        {"constraint": "CHECK (x > 0)"},
        ddl.AddConstraint(*NAMED, "CHECK (x > 0)"),
    ),
]


@pytest.mark.parametrize(
    ("decode", "fields", "expected"), ALTERS, ids=lambda value: getattr(value, "__name__", "")
)
def test_alter_decodes_in_both_spellings_of_the_table(decode, fields, expected) -> None:
    assert decode(pack({**TABLE, **fields})) == expected
    other = {"catalog_name": "c", "schema_name": "s", "table_name": "t", "ignore_not_found": True}
    assert decode(pack({**other, **fields})) == expected


@pytest.mark.parametrize(
    ("decode", "fields", "expected"), ALTERS, ids=lambda value: getattr(value, "__name__", "")
)
def test_alter_refuses_to_go_without_table_or_object(decode, fields, expected) -> None:
    whole = {**TABLE, **fields}
    optional = {
        "catalog",
        "ignore_not_found",
        "if_column_not_exists",
        "if_column_exists",
        "if_field_not_exists",
        "cascade",
    }
    if decode is ddl.decode_change_column_type:
        optional.add("expression")
    for key in whole.keys() - optional:
        with pytest.raises(BadRequest):
            decode(pack({name: value for name, value in whole.items() if name != key}))
        if isinstance(whole[key], str):
            with pytest.raises(BadRequest, match=f"'{key}' must not be empty"):
                decode(pack({**whole, key: ""}))


def test_set_not_null_has_a_key_twice() -> None:
    pairs = [(key, pack(value)) for key, value in {**TABLE, "column_name": "x"}.items()]
    body = b"\x86" + b"".join(
        pack(key) + value for key, value in [*pairs, ("ignore_not_found", b"\xc3")]
    )
    assert ddl.decode_set_not_null(body) == ddl.SetNotNull(*NAMED, "x")


@pytest.mark.parametrize(
    "decode", [ddl.decode_add_column, ddl.decode_change_column_type, ddl.decode_add_field]
)
@pytest.mark.parametrize("count", [0, 2])
def test_a_column_schema_has_exactly_one_field(decode, count) -> None:
    schema = message(pa.schema([(f"x{index}", pa.int32()) for index in range(count)]))
    body = {**TABLE, "column_schema": schema, "expression": "x", "column_path": ["st"]}
    with pytest.raises(BadRequest, match="column schema must contain exactly one field"):
        decode(pack(body))


@pytest.mark.parametrize("path", [[], ["st"], ["st", ""], ["", "b"]])
@pytest.mark.parametrize("decode", [ddl.decode_remove_field, ddl.decode_rename_field])
def test_a_path_leads_into_a_column(decode, path) -> None:
    with pytest.raises(BadRequest, match="column_path"):
        decode(pack({**TABLE, "column_path": path, "new_name": "d"}))


def test_add_field_tells_whether_the_name_of_the_field_was_lost() -> None:
    def decoded(name: str) -> ddl.AddField:
        return ddl.decode_add_field(
            pack({**TABLE, "column_path": ["st", "b"], "column_schema": one_field(name)})
        )

    assert decoded("st").lost_its_name
    assert not decoded("f").lost_its_name
