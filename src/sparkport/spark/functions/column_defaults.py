"""Defaults of columns in statements that Spark runs.

Spark knows nothing of the lake's defaults: it would store NULL. So their values are computed once
for a statement, as they are for an INSERT of a client, and put into its plan before the analysis:
for columns that the list of an INSERT leaves out, and for the word DEFAULT where a value is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.catalog.names import folded
from sparkport.engine.columns import default_of
from sparkport.engine.constraints.compute import default_values
from sparkport.engine.constraints.expressions import is_one_value
from sparkport.errors import BadRequest
from sparkport.spark.functions.query_arguments import literal
from sparkport.spark.iceberg.identifiers import quoted
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.scan.query_plans import kind_of
from sparkport.spark.scan.write_plans import ParsedWrite, WritePlans

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["ColumnDefaults"]

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
_UNRESOLVED_COLUMN = "org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute"


class ColumnDefaults:
    """Puts defaults into parsed statements. Thread-safe."""

    def __init__(self, session: SparkSession, writes: WritePlans) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        self._writes = writes
        self._to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq

    def filled(
        self, session: SparkSession, parsed: Any, write: ParsedWrite, base: TableState, title: str
    ) -> Any:
        """A parsed statement that gives each column a value, where the table has defaults.

        Raises: BadRequest where Spark alone could tell which column lacks one, or a default would
        be computed for each row.
        """
        columns = base.definition.columns
        if not any(map(default_of, columns)):
            return parsed
        values = _Values(base, title)
        if write.by_name:
            values.refuse("list the columns instead of BY NAME")
        filled = self._statement(_Filling(session, write, values), parsed)
        if write.has_default and self._writes.has_default(filled):
            values.refuse(
                "write DEFAULT by itself, as in SET a = DEFAULT"
                if write.operation in ("update", "merge")
                else "leave the column out of the list instead of writing DEFAULT"
            )
        return filled

    def _statement(self, filling: _Filling, node: Any) -> Any:
        match kind_of(node).rpartition(".")[2]:
            case "UnresolvedWith":
                return _copied(node, child=self._statement(filling, node.child()))
            case "InsertIntoStatement":
                return self._insert(filling, node)
            case "UpdateTable":
                return _copied(node, assignments=self._assignments(filling, node.assignments()))
            case "MergeIntoTable":
                actions = ("matchedActions", "notMatchedActions", "notMatchedBySourceActions")
                return _copied(
                    node,
                    **{each: self._actions(filling, getattr(node, each)()) for each in actions},
                )
            case _:
                return node

    def _insert(self, filling: _Filling, node: Any) -> Any:
        """`INSERT INTO t (a) query` as `INSERT INTO t (a, b) SELECT *, default FROM (query)`."""
        given = filling.write.columns
        missing = () if given is None else filling.values.missing(given)
        if not missing:
            return node
        names = [*_each(node.userSpecifiedCols()), *missing]
        selected = [filling.column("*"), *(filling.named_default(name) for name in missing)]
        project = getattr(self._jvm, f"{_LOGICAL}Project")(self._to_seq(selected), node.query())
        return _copied(node, userSpecifiedCols=self._to_seq(names), query=project)

    def _actions(self, filling: _Filling, actions: Any) -> Any:
        found = []
        for action in _each(actions):
            match kind_of(action).rpartition(".")[2]:
                case "InsertAction":
                    filled = self._assignments(filling, action.assignments(), is_insert=True)
                    found.append(_copied(action, assignments=filled))
                case "UpdateAction":
                    filled = self._assignments(filling, action.assignments())
                    found.append(_copied(action, assignments=filled))
                case _:
                    found.append(action)
        return self._to_seq(found)

    def _assignments(self, filling: _Filling, given: Any, *, is_insert: bool = False) -> Any:
        found, names = [], []
        for each in _each(given):
            name = filling.values.column_of(_parts(each.key()))
            names.append(name or "")
            if name and [part.lower() for part in _parts(each.value())] == ["default"]:
                each = _copied(each, value=filling.default(name))
            found.append(each)
        if is_insert:
            assignment = getattr(self._jvm, f"{_LOGICAL}Assignment")
            for name in filling.values.missing(names):
                found.append(assignment(filling.column(quoted(name)), filling.default(name)))
        return self._to_seq(found)


class _Values:
    """The defaults of a table's columns, each computed once."""

    def __init__(self, base: TableState, title: str) -> None:
        self._base = base
        self._title = title
        self._columns = {folded(each.name): each for each in base.definition.columns}
        self._known: dict[str, Column] = {}

    def missing(self, given: tuple[str, ...] | list[str]) -> tuple[str, ...]:
        """The columns with a default that are not among those given."""
        known = set(map(folded, given))
        return tuple(
            column.name
            for key, column in self._columns.items()
            if key not in known and default_of(column)
        )

    def column_of(self, parts: tuple[str, ...]) -> str | None:
        """The column that an assignment names; None for a field inside of one."""
        if not parts or any(folded(each) in self._columns for each in parts[:-1]):
            return None
        column = self._columns.get(folded(parts[-1]))
        return None if column is None else str(column.name)

    def __getitem__(self, name: str) -> Column:
        """The default of a column as a literal, or NULL. Raises: BadRequest."""
        if name not in self._known:
            self._known[name] = self._computed(self._columns[folded(name)])
        return self._known[name]

    def _computed(self, column: pa.Field) -> Column:
        default = default_of(column)
        if default and not is_one_value(default):
            self.refuse(f"give it a value: {default[:100]} is another for each row", column)
        (values,) = default_values(column, [1])
        try:
            return literal(values[0])
        except BadRequest as error:
            raise BadRequest(
                f"{self._title}: the default of column {column.name} of table "
                f"{self._base.identifier} cannot be passed to Spark: give the column a value"
            ) from error

    def refuse(self, remedy: str, column: pa.Field | None = None) -> None:
        """Raises: BadRequest."""
        if column is None:
            column = next(each for each in self._columns.values() if default_of(each))
        raise BadRequest(
            f"{self._title}: Spark does not know the default of column {column.name} of table "
            f"{self._base.identifier}: {remedy}"
        )


class _Filling:
    """What one statement needs: its values as Spark's expressions."""

    def __init__(self, session: SparkSession, write: ParsedWrite, values: _Values) -> None:
        self._session: Any = session._jsparkSession
        self.write = write
        self.values = values

    def column(self, name: str) -> Any:
        from pyspark.sql import functions as sql

        return self._expression(sql.col(name))

    def default(self, name: str) -> Any:
        return self._expression(self.values[name])

    def named_default(self, name: str) -> Any:
        return self._expression(self.values[name].alias(name))

    def _expression(self, column: Any) -> Any:
        return self._session.expression(column._jc)


def _copied(node: Any, **changes: Any) -> Any:
    """A node of a plan with other values in some of its fields."""
    fields: Mapping[str, Any] = {
        str(node.productElementName(place)): node.productElement(place)
        for place in range(node.productArity())
    }
    return node.copy(*{**fields, **changes}.values())


def _parts(node: Any) -> tuple[str, ...]:
    """The parts of a column's name; none for another expression."""
    return tuple(_each(node.nameParts())) if kind_of(node) == _UNRESOLVED_COLUMN else ()


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
