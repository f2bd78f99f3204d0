"""The columns of a table or a view that a query makes, as Iceberg has them."""

from __future__ import annotations

import re
from typing import Any

from sparkport.catalog.names import folded
from sparkport.errors import BadRequest, Unsupported
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.gateway import Gateway

__all__ = ["schema_text"]

_VOID = re.compile(r"(^|[:<,])void($|[,>])")
"""The type of NULL, also inside of another type."""


def schema_text(gateway: Gateway, identifier: Identifier, plan: Any) -> str:
    """The columns of an analysed plan as an Iceberg schema, in JSON; all of them take NULL.

    Raises: BadRequest, Unsupported for columns that a table or a view cannot have.
    """
    fields = plan.schema().asNullable()
    names = [str(name) for name in fields.fieldNames()]
    if len({folded(name) for name in names}) < len(names) or not all(names):
        raise BadRequest(
            f"the columns of {identifier} need names that differ, not only in case: give them with "
            "AS"
        )
    iceberg = gateway.jvm.org.apache.iceberg
    convert = iceberg.spark.SparkSchemaUtil.convert
    for each in fields.fields():
        if _VOID.search(str(each.dataType().catalogString())):
            raise BadRequest(
                f"column {each.name()} of {identifier} has no type: write CAST(NULL AS …)"
            )
        try:
            convert(each.dataType())
        except Exception as error:
            raise Unsupported(
                f"column {each.name()} of {identifier} cannot have type {each.dataType().sql()}, "
                "which Iceberg does not have: cast it"
            ) from error
    return str(iceberg.SchemaParser.toJson(convert(fields)))
