"""The tables of the reference that are made from the code.

`python -m tests.docs.tables` writes them into their pages. In a page they stand between `<!--
generated: name -->` and `<!-- end of name -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from tests.docs.blocks import ROOT

from sparkport.catalog import Parameter, ParameterKind, ScalarFunction
from sparkport.config import settings_markdown
from sparkport.engine.constraints import allowed
from sparkport.engine.types import type_name
from sparkport.spark.functions.care_functions import Care, SetCare
from sparkport.spark.functions.lake_functions import SparkSql, SparkSqlWithArguments
from sparkport.spark.functions.maintenance import ExpireSnapshots, Optimize
from sparkport.spark.functions.metadata_functions import Files, History, Snapshots
from sparkport.spark.functions.sized_views import Views
from sparkport.spark.functions.spark_run import (
    REPORT,
    SparkRun,
    SparkRunPipeline,
    SparkRunWithArguments,
)
from sparkport.spark.functions.spark_run_in_blocks import (
    SparkRunInBlocks,
    SparkRunPipelineInBlocks,
)
from sparkport.spark.functions.table_argument import FunctionOfTable
from sparkport.spark.functions.table_changes import TableChanges, TableChangesSince
from sparkport.spark.functions.transaction_functions import transaction_functions
from sparkport.spark.functions.upsert import merging_functions
from sparkport.spark.functions.versions import RollbackTo, Tag
from sparkport.spark.iceberg.types.declared import (
    declared_fields,
    order_preserving,
    spark_type,
    stored_schema,
    written_type_tags,
)
from sparkport.spark.iceberg.types.type_tags import TYPES_PROPERTY
from sparkport.testing.local import LocalDuckDB
from sparkport.testing.types import duckdb_type

__all__ = ["GENERATED", "with_tables"]

_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *(
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "UHUGEINT",
        "BIGNUM",
        "FLOAT",
        "DOUBLE",
        "DECIMAL(12, 2)",
    ),
    *("VARCHAR", "BLOB", "BIT", "UUID", "JSON"),
    *("DATE", "TIME", "TIME_NS", "TIMETZ"),
    *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ", "INTERVAL"),
    *(
        "INTEGER[]",
        "INTEGER[3]",
        "STRUCT(a INTEGER, b VARCHAR)",
        "MAP(VARCHAR, INTEGER)",
        "UNION(a INTEGER, b VARCHAR)",
    ),
)


def _types() -> str:
    rows = [
        "| DuckDB | Arrow, as published | Iceberg | Spark SQL | in order |",
        "|---|---|---|---|---|",
    ]
    for kind in _TYPES:
        sent = LocalDuckDB.shared(True).arrow_schema({"c": kind})
        stored, type_tags = stored_schema(sent)
        (shown,) = declared_fields(stored, {TYPES_PROPERTY: written_type_tags(type_tags)})
        iceberg = stored.fields[0].field_type
        ordered = "yes" if order_preserving(iceberg, shown) else ""
        rows.append(
            f"| {kind} | `{_arrow(shown.type)}` | `{_iceberg(str(iceberg))}` | "
            f"`{_plain(spark_type(iceberg))}` | {ordered} |"
        )
    return "\n".join(rows)


def _arrow(kind: pa.DataType) -> str:
    if isinstance(kind, pa.BaseExtensionType):
        return f"{type_name(kind)}: {kind.storage_type}"
    return str(kind).replace("Etc/UTC", "…")


def _plain(text: str) -> str:
    return text.replace("`", "")


def _iceberg(text: str) -> str:
    return re.sub(r"\d+: ", "", text).replace("optional ", "").replace("required ", "")


_OF_TABLES: Sequence[type[FunctionOfTable]] = (
    *(Snapshots, History, Files, TableChangesSince, TableChanges),
    *(RollbackTo, Tag, SetCare, Optimize, ExpireSnapshots),
)

_CHANGES: Sequence[type[SparkRun | SparkRunInBlocks]] = (
    *(SparkRun, SparkRunWithArguments, SparkRunPipeline),
    *(SparkRunInBlocks, SparkRunPipelineInBlocks),
)


def _functions() -> str:
    """The functions of the lake, made without a lake: their signatures need none."""
    lake: Any = None
    queries = [form(lake, lake, ()) for form in (SparkSql, SparkSqlWithArguments)]
    changes = [form(lake, lake, ()) for form in _CHANGES]
    of_tables = [form(lake, ()) for form in _OF_TABLES]
    found: list[Any] = [
        *queries,
        *changes,
        *of_tables,
        Care(lake, None, ()),
        Views(lake, ()),
        *merging_functions(lake, ()),
        *transaction_functions(lake),
    ]
    rows = ["| function | columns of its rows |", "|---|---|"]
    for function in found:
        parameters = [_parameter(each) for each in function.signature.parameters]
        columns = getattr(function, "columns", None)
        if isinstance(function, SparkRun):
            shown = _shown(REPORT)
        elif isinstance(function, SparkRunInBlocks):
            shown = "in SELECT: a list of STRUCTs with these fields, one for each statement"
        elif isinstance(function, ScalarFunction):
            shown = "a text, once for each row of the query"
        elif columns is not None:
            shown = _shown(columns)
        else:
            shown = (
                "those of the table, `_change_type`, `_row_id`"
                if "from" in str(parameters)
                else "those of the query"
            )
        rows.append(f"| `{function.name}({', '.join(parameters)})` | {shown} |")
    return "\n".join(rows)


def _shown(columns: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_sql_type(field)}" for field in columns)


def _parameter(parameter: Parameter) -> str:
    if parameter.kind is ParameterKind.TABLE:
        return "(SELECT …)"
    kind = "any type" if parameter.type is None else _sql_type(pa.field("", parameter.type))
    return (
        f"{parameter.name} := {kind}"
        if parameter.kind is ParameterKind.NAMED
        else f"{parameter.name} {kind}"
    )


def _sql_type(field: pa.Field) -> str:
    return duckdb_type(field, "main", "the reference").replace(
        "TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"
    )


def _expressions() -> str:
    rows = ["| functions | |", "|---|---|"]
    groups: Sequence[tuple[str, Collection[str]]] = (
        ("numbers and times", allowed.ARITHMETIC),
        ("a value of a few bytes", allowed.FIXED),
        ("parts and compositions", allowed.SUMMED),
        ("a few times larger than what they are given", allowed.GROWING),
        ("insertions", allowed.INSERTING),
        ("repetitions", allowed.COUNTED),
        ("regular expressions", allowed.PATTERNS),
        ("`LIKE`, `ILIKE`, `GLOB`", allowed.LIKES),
        ("JSON", allowed.PATHS),
        ("distances from a text that is written out", allowed.PRODUCTS),
        ("lambdas", allowed.LAMBDAS),
        (
            "the moment and chance, in DEFAULT and USING only",
            allowed.CHANGING | allowed.CHANGING_WORDS,
        ),
    )
    for title, names in groups:
        shown = " ".join(f"`{name}`" for name in sorted(names)).replace("|", "\\|")
        rows.append(f"| {title} | {shown} |")
    return "\n".join(rows)


GENERATED: Mapping[str, tuple[str, Callable[[], str]]] = {
    "functions": ("docs/reference/functions.md", _functions),
    "types": ("docs/reference/types.md", _types),
    "expressions": ("docs/reference/expressions.md", _expressions),
    "settings": ("docs/reference/configuration.md", settings_markdown),
}
"""By name: the page, and what makes the table."""


def with_tables(text: str, name: str, table: str) -> str:
    """The page with a table put in its place."""
    begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, also_found, after = rest.partition(end)
    assert found, f"the page has no place for {name}"
    assert also_found, f"the page has no place for {name}"
    return f"{before}{begin}\n\n{table.strip()}\n\n{end}{after}"


if __name__ == "__main__":
    for name, (page, make) in GENERATED.items():
        path = ROOT / page
        path.write_text(with_tables(path.read_text("utf-8"), name, make()), "utf-8")
