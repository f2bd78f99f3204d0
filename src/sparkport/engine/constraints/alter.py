"""What happens to constraints when a table is altered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from sparkport.catalog.constraints import Constraints
from sparkport.engine.constraints.expressions import renamed_in, used_columns
from sparkport.engine.constraints.validate import parse_constraint, validate_constraints
from sparkport.errors import PreconditionFailed

__all__ = ["constraints_using", "constraints_without", "with_constraint", "with_renamed_column"]


def constraints_using(constraints: Constraints, names: Sequence[str], column: str) -> list[str]:
    """Names, for messages, of the constraints that forbid to drop a column.

    NOT NULL does not forbid it. `names` are all columns.
    """
    using = (
        [f"the primary key ({', '.join(constraints.primary_key)})"]
        if column in constraints.primary_key
        else []
    )
    using += [f"UNIQUE({', '.join(key)})" for key in constraints.unique if column in key]
    using += [
        f"CHECK({check})" for check in constraints.checks if column in used_columns(check, names)
    ]
    return using


def constraints_without(constraints: Constraints, names: Sequence[str], column: str) -> Constraints:
    """The constraints that are left after a column is dropped; `names` are all columns before."""
    return Constraints(
        not_null=tuple(each for each in constraints.not_null if each != column),
        checks=tuple(
            check for check in constraints.checks if column not in used_columns(check, names)
        ),
        unique=tuple(key for key in constraints.unique if column not in key),
        primary_key=() if column in constraints.primary_key else constraints.primary_key,
    )


def with_renamed_column(
    constraints: Constraints, names: Sequence[str], old: str, new: str
) -> Constraints:
    """The constraints after a column was renamed; `names` are all columns before that.

    Raises: PreconditionFailed when a CHECK cannot be rewritten for certain.
    """

    def spelled(columns: Iterable[str]) -> tuple[str, ...]:
        return tuple(new if column == old else column for column in columns)

    return replace(
        constraints,
        not_null=spelled(constraints.not_null),
        checks=tuple(
            renamed_in(check, old, new) if old in used_columns(check, names) else check
            for check in constraints.checks
        ),
        unique=tuple(spelled(key) for key in constraints.unique),
        primary_key=spelled(constraints.primary_key),
    )


def with_constraint(
    columns: pa.Schema, old: Constraints, text: str, table: object, name: str
) -> tuple[Constraints, Constraints]:
    """Add a constraint, given as SQL: all constraints, and those that are new.

    The SQL may qualify columns with `name`. Raises: BadRequest; PreconditionFailed for a second
    primary key.
    """
    new = parse_constraint(text)
    if old.primary_key and new.primary_key:
        raise PreconditionFailed(f"table {table} has a primary key already")
    merged = Constraints(
        not_null=(*old.not_null, *new.not_null),
        checks=(*old.checks, *new.checks),
        unique=(*old.unique, *new.unique),
        primary_key=new.primary_key or old.primary_key,
    )
    merged = validate_constraints(columns, merged, name)
    added = Constraints(
        not_null=tuple(each for each in merged.not_null if each not in old.not_null),
        checks=tuple(check for check in merged.checks if check not in old.checks),
        unique=tuple(key for key in merged.unique if key not in old.unique),
        primary_key=() if old.primary_key else merged.primary_key,
    )
    return merged, added
