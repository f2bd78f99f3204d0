"""Checking that constraints make sense for the columns of a table, before they are accepted."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from sparkport.catalog.constraints import Constraints
from sparkport.catalog.names import folded
from sparkport.engine.constraints.expressions import expect_check, unqualified
from sparkport.errors import BadRequest, Unsupported

__all__ = ["parse_constraint", "validate_constraints"]


def validate_constraints(
    arrow_schema: pa.Schema, constraints: Constraints, table: str = ""
) -> Constraints:
    """Complete constraints, with every column spelled as in the schema, and without repetitions.

    Complete means that columns of the primary key and columns that are not nullable are listed as
    NOT NULL. CHECKs may qualify columns with the name `table`; the returned CHECKs do not.

    Raises: BadRequest for a column that does not exist, or a CHECK that is not SQL or cannot be
    computed from one row.
    """
    names = {folded(name): name for name in arrow_schema.names}

    def spelled(columns: Iterable[str], what: str) -> tuple[str, ...]:
        for column in columns:
            if folded(column) not in names:
                raise BadRequest(f"{what} is on column {column}, which the table does not have")
        return tuple(dict.fromkeys(names[folded(column)] for column in columns))

    primary_key = spelled(constraints.primary_key, "the primary key")
    unique = [spelled(key, "a UNIQUE constraint") for key in constraints.unique]
    if not all(unique):
        raise BadRequest("a UNIQUE constraint needs at least one column")
    required = {*spelled(constraints.not_null, "a NOT NULL constraint"), *primary_key}
    checks = []
    for check in constraints.checks:
        expect_check(check, arrow_schema, f"the constraint CHECK({check[:200]})", table)
        checks.append(unqualified(check, table, arrow_schema.names) if table else check)
    return Constraints(
        not_null=tuple(
            field.name for field in arrow_schema if field.name in required or not field.nullable
        ),
        checks=tuple(dict.fromkeys(checks)),
        unique=tuple(dict.fromkeys(unique)),
        primary_key=primary_key,
    )


_CONSTRAINT = re.compile(
    r"\s*(?:ADD\s+)?(?:CONSTRAINT\s+(?:\"(?:[^\"]|\"\")+\"|\w+)\s+)?"
    r"(?P<kind>CHECK|UNIQUE|PRIMARY\s+KEY|FOREIGN\s+KEY)\s*\((?P<body>.*)\)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
_NAME = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\W\d][\w$]*))\s*(?P<comma>,)?')


def parse_constraint(text: str) -> Constraints:
    """Read one constraint of a table: `CHECK (v > 0)`, `UNIQUE (a, "b c")`, `PRIMARY KEY (id)`.

    Its name (`CONSTRAINT positive CHECK …`) is not kept. Raises: BadRequest; Unsupported for a
    foreign key.
    """
    match = _CONSTRAINT.fullmatch(text)
    if match is None:
        raise BadRequest(
            f"the constraint {text[:200]!r} cannot be read; write CHECK(expression), "
            f"UNIQUE(columns) or "
            "PRIMARY KEY(columns)"
        )
    match match["kind"].upper().split()[0]:
        case "CHECK":
            return Constraints(checks=(f"({match['body'].strip()})",))
        case "UNIQUE":
            return Constraints(unique=(_names(match["body"], text),))
        case "PRIMARY":
            key = _names(match["body"], text)
            return Constraints(primary_key=key, not_null=key)
        case _:
            raise Unsupported("foreign keys are not supported")


def _names(body: str, text: str) -> tuple[str, ...]:
    names, position, more = [], 0, True
    while more:
        match = _NAME.match(body, position)
        if match is None:
            raise BadRequest(f"the columns of the constraint {text[:200]!r} cannot be read")
        names.append(match["plain"] or match["quoted"].replace('""', '"'))
        position, more = match.end(), match["comma"] is not None
    if position != len(body):
        raise BadRequest(f"the columns of the constraint {text[:200]!r} cannot be read")
    return tuple(names)
