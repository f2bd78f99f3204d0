"""Python functions in the schemas of a lake, beside the lake's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparkport.catalog import Context, ScalarFunction, Schema, TableFunction, TableInOutFunction
from sparkport.catalog.names import folded
from sparkport.errors import AlreadyExists

__all__ = ["FunctionSource", "IncludedFunctions", "IncludedSchema"]


class FunctionSource(Protocol):
    """What functions are included from: a `CatalogBuilder`."""

    def function_schemas(self) -> Sequence[Schema]:
        """The schemas, which have functions only. Raises: BadRequest."""


@dataclass(frozen=True, slots=True)
class IncludedSchema:
    """The functions that were included for one schema."""

    name: str
    comment: str = ""
    tags: Mapping[str, str] | None = None
    scalar_functions: tuple[ScalarFunction, ...] = ()
    table_functions: tuple[TableFunction | TableInOutFunction, ...] = ()

    @property
    def names(self) -> frozenset[bytes]:
        """The functions' names, as DuckDB compares them."""
        return frozenset(
            folded(each.name) for each in (*self.scalar_functions, *self.table_functions)
        )


class IncludedFunctions:
    """All functions that were included, by schema. Reading it is thread-safe."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, IncludedSchema] = {}

    @property
    def schemas(self) -> Sequence[IncludedSchema]:
        return tuple(self._schemas.values())

    def of(self, schema: str) -> IncludedSchema:
        """What was included for a schema, however its name is spelled; perhaps nothing."""
        return self._schemas.get(folded(schema)) or IncludedSchema(schema)

    def add(self, source: FunctionSource, taken: Callable[[str], Collection[bytes]]) -> None:
        """Include all functions or none; `taken` has the names of a schema's other functions.

        Raises: BadRequest; AlreadyExists for a name that is taken.
        """
        known = dict(self._schemas)
        for schema in source.function_schemas():
            before, ctx = self.of(schema.name), Context()
            added = IncludedSchema(
                schema.name,
                schema.comment,
                schema.tags,
                tuple(schema.scalar_functions(ctx)),
                tuple(schema.table_functions(ctx)),
            )
            for each in (*added.scalar_functions, *added.table_functions):
                if folded(each.name) in taken(schema.name):
                    raise AlreadyExists(
                        f"function {schema.name}.{each.name}: every schema of a lake has a "
                        "function of this name: give yours another name"
                    )
                if folded(each.name) in before.names:
                    raise AlreadyExists(
                        f"function {schema.name}.{each.name} was included already: give one of the "
                        "two another name"
                    )
            known[folded(schema.name)] = IncludedSchema(
                before.name,
                before.comment or added.comment,
                {**(before.tags or {}), **(added.tags or {})},
                before.scalar_functions + added.scalar_functions,
                before.table_functions + added.table_functions,
            )
        self._schemas = known
