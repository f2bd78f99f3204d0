"""Every type of airport §13 makes the round trip, bit for bit: one test for each thing that can be
done with a value.

A test's id names the type and, after a colon, the setting whose encoding is sent. Settings that
encode a type alike are tested once. Tests that say "by SQL" use `DuckDBClient`; the others send,
message by message, what it has no setting for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.types.encoded import bits, cast, meant, pushed, session, stored
from tests.types.ground import ROOM, Ground, serve, shown, told
from tests.types.matrix import LINES, Line, Setting

from sparkport.engine.argument_types import sent_type
from sparkport.testing import DuckDBClient
from sparkport.testing.local import LocalDuckDB
from sparkport.testing.types import duckdb_type, given_out

DUCKDB_1 = duckdb.__version__.startswith("1.")


def _case(line: Line, *setting: Setting) -> Any:
    unsaid = pytest.mark.skipif(
        DUCKDB_1, reason="DuckDB 1 makes an INTEGER of a column that is only NULL"
    )
    marks = [unsaid] if pa.types.is_null(line.arrow) else []
    return pytest.param(
        line,
        *setting,
        id=": ".join([line.name, *(each.name.lower() for each in setting)]),
        marks=marks,
    )


def _by_encoding(applies: Callable[[Line, Setting], bool]) -> pytest.MarkDecorator:
    cases = [
        _case(line, setting)
        for line in LINES
        for setting in line.distinct
        if applies(line, setting)
    ]
    return pytest.mark.parametrize(("line", "setting"), cases)


by_type = pytest.mark.parametrize("line", [_case(line) for line in LINES])
SIMULATED = (Setting.LOSSLESS, Setting.DEFAULT)
by_encoding = _by_encoding(lambda line, setting: True)
by_simulated_encoding = _by_encoding(lambda line, setting: setting in SIMULATED)
by_lossless_encoding = _by_encoding(lambda line, setting: setting is not Setting.DEFAULT)
# Arguments whose encoding depends on more than lossless conversion the client sends under the
# declared type, without converting them, unless they are declared as of any type (T32).
by_encoding_of_arguments = _by_encoding(
    lambda line, setting: setting in SIMULATED or sent_type(line.arrow) is None
)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with ExitStack() as stack:
        yield serve(stack)


def client_with(ground: Ground, setting: Setting, table: str | None = None) -> DuckDBClient:
    client = ground.default if setting is Setting.DEFAULT else ground.client
    if table is not None and table not in client.tables("s"):
        client.detach()  # the other client has made the table since this one attached the catalog
    return client


def table_of(line: Line) -> pa.Table:
    """The values as rows for `DuckDBClient`, which encodes them itself."""
    return pa.table(
        [meant(line, Setting.LOSSLESS)], schema=pa.schema([line.sent_as(Setting.LOSSLESS)])
    )


def metadata_of(field: pa.Field) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}


# -------------------------------------------------------------------------------------- the matrix


def test_there_is_a_line_for_every_type_that_the_client_sends() -> None:
    known = {
        kind
        for (kind,) in session(Setting.LOSSLESS)
        .sql("SELECT logical_type FROM duckdb_types()")
        .fetchall()
    }
    not_sent = {"VARIANT", "TIMESTAMPTZ_NS", "TUPLE", "TYPE"}
    forms = {"[]": "LIST", "3]": "ARRAY"}
    lines = {forms.get(line.name[-2:], line.name.partition("(")[0].strip('"')) for line in LINES}
    assert known - not_sent <= lines


@by_type
def test_the_matrix_is_true_of_duckdb(line: Line) -> None:
    for setting in Setting:
        assert meant(line, setting).type.equals(line.encodings[setting]), setting
    values = ", ".join(
        f"({number}, CAST({value} AS {line.declared}))" for number, value in enumerate(line.values)
    )
    found = session(Setting.LOSSLESS).sql(
        f"SELECT n FROM (VALUES {values}) AS t(n, v) WHERE {line.where} ORDER BY n"
    )
    assert tuple(n for (n,) in found.fetchall()) == line.kept


# ---------------------------------------------------------------------------------------- declared


@by_type
def test_a_column_has_the_type_that_it_was_declared_with_by_sql(ground: Ground, line: Line) -> None:
    column = ground.client.table("s", ground.table(line)).column("v")
    assert column is not None
    assert column.type == (line.reported or line.name)
    assert column.field.type.equals(told(line.published), check_metadata=True)
    assert metadata_of(column.field) == line.metadata


@by_type
def test_a_column_declared_with_default_settings_loses_what_the_wire_cannot_say_and_no_more(
    ground: Ground, line: Line
) -> None:
    name = f"d{LINES.index(line)}"
    column = ground.default.create_table("s", name, {"v": line.declared}).column("v")
    assert column is not None
    assert column.type == (line.by_default or line.name)
    numbers, expected = cast(line, column.sql_type)
    rows = table_of(line)
    ground.default.insert(
        "s", name, rows if len(numbers) == len(line.values) else rows.take(numbers)
    )
    assert bits(ground.default.scan("s", name).column("v")) == expected


@by_lossless_encoding
def test_a_column_declared_in_an_encoding_keeps_it_and_its_values(
    ground: Ground, line: Line, setting: Setting
) -> None:
    name = f"e{LINES.index(line)}_{setting.name}"
    ground.client.create_table(
        "s", name, pa.schema([pa.field("i", pa.int32()), line.sent_as(setting)])
    )
    ground.insert(name, line, setting, 0)
    values = ground.rows(name, 0)
    expected = line.published if pa.types.is_dictionary(line.arrow) else line.encodings[setting]
    assert values.type.equals(given_out(expected), check_metadata=True)
    assert bits(values) == bits(meant(line, setting))


# --------------------------------------------------------------------------------- rows of a table


@by_encoding
def test_rows_inserted_in_an_encoding_are_returned_and_read_bit_for_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    name, first = ground.table(line), ground.number()
    returned = ground.insert(name, line, setting, first)
    assert returned.schema.field("v").type.equals(told(line.published))
    assert bits(returned.column("v")) == bits(stored(line, setting))
    assert bits(ground.rows(name, first)) == bits(stored(line, setting))


@by_type
def test_create_table_as_by_sql_keeps_every_bit(ground: Ground, line: Line) -> None:
    name = f"c{LINES.index(line)}"
    assert ground.client.create_table_as("s", name, table_of(line)).total == len(line.values)
    assert bits(ground.client.scan("s", name).column("v")) == bits(meant(line, Setting.LOSSLESS))


@by_simulated_encoding
def test_rows_inserted_by_sql_are_returned_and_read_bit_for_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    name, first = ground.table(line), ground.number()
    numbers = pa.array(range(first, first + len(line.values)), pa.int32())
    rows = table_of(line).append_column("i", numbers)
    inserted = client_with(ground, setting, name).insert("s", name, rows, returning=True)
    assert inserted.rows is not None
    assert bits(inserted.rows.column("v")) == bits(stored(line, setting))
    assert bits(ground.rows(name, first)) == bits(stored(line, setting))


@by_type
def test_a_condition_by_sql_keeps_the_rows_that_duckdb_keeps(ground: Ground, line: Line) -> None:
    if line.name == "GEOMETRY" and DUCKDB_1:
        pytest.skip("DuckDB 1 cannot compare the BLOB that the simulation scans with a GEOMETRY")
    first, name = ground.filled(line), ground.table(line)
    where = f"({line.where}) AND i BETWEEN {first} AND {first + ROOM - 1}"
    found = ground.client.scan("s", name, ["i", "v"], where=where)
    values = bits(stored(line, Setting.LOSSLESS))
    assert found.column("i").to_pylist() == [first + row for row in line.kept]
    assert bits(found.column("v")) == [values[row] for row in line.kept]


@by_type
def test_a_pushed_filter_keeps_the_rows_that_duckdb_keeps(ground: Ground, line: Line) -> None:
    first, name = ground.filled(line), ground.table(line)
    last = first + ROOM - 1
    if line.compared is not None:
        json = pushed(line, first, last)
    else:
        columns = {
            column.name: column.sql_type for column in ground.client.table("s", name).columns
        }
        json = LocalDuckDB.shared(True).filter_json(
            f"({line.where}) AND i BETWEEN {first} AND {last}", columns
        )
    # Nobody applies the condition again: these are the rows that the server sends.
    found = ground.client.scan("s", name, ["i"], filter=json).column("i").to_pylist()
    kept = [first + row for row in line.kept]
    if line.exact:
        assert found == kept
    else:
        assert set(found) >= set(kept)


@by_encoding
def test_a_row_updated_in_an_encoding_is_returned_and_read_bit_for_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    first = ground.filled(line)
    returned = ground.update(line, setting, first + len(line.values) - 1)
    check_updated(line, setting, returned.column("v"))
    assert bits(ground.rows(ground.table(line), first))[-1] == bits(stored(line, setting))[0]


@by_simulated_encoding
def test_a_row_updated_by_sql_is_returned_and_read_bit_for_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    first, name = ground.filled(line), ground.table(line)
    new_value = f"CAST({line.values[0]} AS {line.declared})"
    changed = client_with(ground, setting, name).update(
        "s", name, {"v": new_value}, f"i = {first + 1}", returning=True
    )
    assert changed.total == 1
    assert changed.rows is not None
    check_updated(line, setting, changed.rows.column("v"))
    others = bits(stored(line, Setting.LOSSLESS))
    assert bits(ground.rows(name, first)) == [
        others[0],
        bits(stored(line, setting))[0],
        *others[2:],
    ]


def check_updated(line: Line, setting: Setting, returned: pa.Array | pa.ChunkedArray) -> None:
    """The client looks for columns where it has sent them, but takes their values for the type that
    was published.

    So they may come back as they were sent only where DuckDB keeps both types alike in its memory.
    The text of a UUID it shows as if it were the bytes of one, and a TIME as a TIMETZ (tried with
    the client itself).
    """
    assert in_memory(returned.type) == in_memory(line.published)
    echoed = not returned.type.equals(line.published)
    assert bits(returned) == bits(meant(line, setting) if echoed else stored(line, setting))[:1]


def in_memory(kind: pa.DataType) -> str:
    name = duckdb_type(pa.field("v", kind), "main", "RETURNING")
    for one, other in (
        ("JSON", "VARCHAR"),
        ("BIT", "BLOB"),
        ("UHUGEINT", "HUGEINT"),
        ("DECIMAL(38,0)", "HUGEINT"),
    ):
        name = name.replace(one, other)
    return name


# --------------------------------------------------------------------------------------- functions


@by_encoding_of_arguments
def test_a_scalar_function_of_the_type_gets_and_returns_every_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    name = f"same_{LINES.index(line)}"
    if sent_type(line.arrow) is None:
        assert b"is_any_type" in ground.function(name).input_schema.field(0).metadata
        result = ground.call(name, line, setting)
    else:
        result = client_with(ground, setting).call("s", name, [meant(line, Setting.LOSSLESS)])
    assert result.type.equals(line.published)
    assert bits(result) == bits(stored(line, setting))


@by_encoding
def test_a_scalar_function_of_any_type_gets_and_returns_every_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    result = ground.call(f"any_{LINES.index(line)}_{setting.name}", line, setting)
    assert result.type.equals(shown(line.encodings[setting]))
    assert bits(result) == bits(meant(line, setting))


@by_encoding
def test_a_table_function_of_the_type_gets_the_value_and_returns_every_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    name = f"echo_{LINES.index(line)}"
    rows = ground.table_function(name, line, setting, 0)
    assert rows.schema.field("v").type.equals(told(line.published))
    assert bits(rows.column("v")) == bits(stored(line, setting))[:1]
    if setting is not Setting.DEFAULT or not line.arrives:
        arrived = ground.echoes[name].arrived
        assert (type(arrived), arrived) == (type(line.python), line.python)


@by_encoding
def test_a_table_function_of_any_type_gets_and_returns_every_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    values = bits(meant(line, setting))
    for row in range(len(line.values)) if setting is Setting.LOSSLESS else [0]:
        rows = ground.table_function("echo", line, setting, row)
        assert rows.schema.field("v").type.equals(told(shown(line.encodings[setting])))
        assert bits(rows.column("v")) == values[row : row + 1]
        assert metadata_of(rows.schema.field("v")) == line.metadata


@by_encoding
def test_an_in_out_function_gets_and_returns_every_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    result = ground.in_out("through", line, setting)
    assert result.schema.field("v").type.equals(shown(line.encodings[setting]))
    assert bits(result.column("v")) == bits(meant(line, setting))
    assert metadata_of(result.schema.field("v")) == line.metadata


@by_simulated_encoding
def test_a_scalar_function_called_by_sql_returns_every_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    name = f"any_{LINES.index(line)}_{setting.name}"
    result = client_with(ground, setting).call("s", name, [meant(line, Setting.LOSSLESS)])
    assert bits(result) == bits(meant(line, setting))


@by_simulated_encoding
def test_a_table_function_called_by_sql_returns_every_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    value = meant(line, Setting.LOSSLESS).slice(0, 1)
    rows = client_with(ground, setting).table_function("s", f"echo_{LINES.index(line)}", value)
    assert bits(rows.column("v")) == bits(stored(line, setting))[:1]


@by_simulated_encoding
def test_an_in_out_function_called_by_sql_returns_every_bit(
    ground: Ground, line: Line, setting: Setting
) -> None:
    rows = client_with(ground, setting).in_out("s", "through", rows=table_of(line))
    assert bits(rows.column("v")) == bits(meant(line, setting))
