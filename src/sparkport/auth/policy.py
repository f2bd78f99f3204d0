"""Who may do what: grants, row filters and masks, and a caller's Access to a catalog made of them.

Rules name objects by paths, `catalog`, `catalog.schema` or `catalog.schema.object`, or by patterns
of paths (`sparkport.auth.paths`). They name callers by a principal's name, `group:` and a group's
name, or `*` for everybody. A grant never takes anything away: what no grant allows is not allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkport.auth.paths import PathPattern
from sparkport.catalog import Access, Identity, Privilege, Restrictions
from sparkport.catalog.names import folded
from sparkport.engine.cache import Cache
from sparkport.errors import BadRequest

__all__ = ["Grant", "Mask", "Policy", "RowFilter"]

EVERYBODY = "*"
_GROUP = "group:"
_MOST_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Grant:
    """Lets callers use a catalog, schema, table or function and everything inside it."""

    to: tuple[str, ...]
    on: str
    may: tuple[Privilege, ...]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The rows of a table that its readers see.

    The condition is DuckDB SQL, with attributes of the reader as `$name`.
    """

    on: str
    rows: str
    to: tuple[str, ...] = (EVERYBODY,)
    but: tuple[str, ...] = ()
    """Callers who see all rows nevertheless."""


@dataclass(frozen=True, slots=True)
class Mask:
    """The values that readers see in place of a column's.

    The expression is DuckDB SQL, with attributes of the reader as `$name`.
    """

    on: str
    column: str
    value: str = "NULL"
    to: tuple[str, ...] = (EVERYBODY,)
    but: tuple[str, ...] = ()
    """Callers who see the values nevertheless."""


class Policy:
    """All rules of a server about who may do what. Thread-safe.

    Without grants, everybody may do everything that is not filtered or masked.
    """

    def __init__(
        self,
        grants: Iterable[Grant] | None = None,
        row_filters: Iterable[RowFilter] = (),
        masks: Iterable[Mask] = (),
        admins: Iterable[str] = (),
    ) -> None:
        """`grants` None grants everything to everybody; an empty list grants nothing.

        Of several masks for a caller and column the first counts.

        Raises: BadRequest for masks on the same path that spell a column in two ways.
        """
        self._grants = (
            None if grants is None else tuple((each, PathPattern(each.on)) for each in grants)
        )
        self._row_filters = tuple((each, PathPattern(each.on)) for each in row_filters)
        self._masks = tuple((each, PathPattern(each.on)) for each in masks)
        _refuse_two_spellings(each for each, _ in self._masks)
        self._admins = tuple(admins)
        self._known: Cache[tuple[str, frozenset[str], str, str], Access] = Cache(_MOST_REMEMBERED)

    def access(self, identity: Identity | None, catalog: str) -> Access:
        """Return what a caller may do in a catalog; None is a caller without an identity."""
        key = _key(identity, catalog)
        known = self._known.find(key, None)
        return known or self._known.add(key, self._make(identity, catalog))

    def is_admin(self, identity: Identity | None) -> bool:
        """Whether a caller may see and cancel the calls of others."""
        return identity is not None and _is_for(identity, self._admins)

    def _make(self, identity: Identity | None, catalog: str) -> Access:
        grants = None
        if self._grants is not None:
            grants = [
                (path, frozenset(each.may))
                for each, path in self._grants
                if _is_for(identity, each.to)
            ]
        filters = [(path, each) for each, path in self._row_filters if _applies(identity, each)]
        masks = [(path, each) for each, path in self._masks if _applies(identity, each)]
        return _Granted(identity, catalog, grants, filters, masks)


class _Granted(Access):
    def __init__(
        self,
        identity: Identity | None,
        catalog: str,
        grants: Sequence[tuple[PathPattern, frozenset[Privilege]]] | None,
        row_filters: Sequence[tuple[PathPattern, RowFilter]],
        masks: Sequence[tuple[PathPattern, Mask]],
    ) -> None:
        self._catalog = catalog
        self._grants = grants
        self._row_filters = [each for each in row_filters if each[0].may_reach(catalog)]
        self._masks = [each for each in masks if each[0].may_reach(catalog)]
        self._values = _values(identity)
        self.everything = False
        self.restricted = bool(self._row_filters or self._masks)

    def may(self, privilege: Privilege, schema: str = "", name: str = "") -> bool:
        path = self._path(schema, name)
        return self._grants is None or any(
            privilege in allowed or (privilege is Privilege.LIST and allowed)
            for pattern, allowed in self._grants
            if pattern.covers(path)
        )

    def sees_catalog(self) -> bool:
        return self._grants is None or any(
            pattern.may_reach(self._catalog) for pattern, _ in self._grants
        )

    def sees_schema(self, schema: str) -> bool:
        path = self._path(schema, "")
        return self._grants is None or any(pattern.may_reach(path) for pattern, _ in self._grants)

    def restrictions(self, schema: str, table: str) -> Restrictions | None:
        if not self.restricted:
            return None
        path = self._path(schema, table)
        rows = tuple(each.rows for pattern, each in self._row_filters if pattern.covers(path))
        first: dict[bytes, Mask] = {}
        for pattern, each in self._masks:
            if pattern.covers(path):
                first.setdefault(folded(each.column), each)
        masks = {each.column: each.value for each in first.values()}
        return Restrictions(rows, masks, self._values) if rows or masks else None

    def _path(self, schema: str, name: str) -> str:
        return ".".join([self._catalog, *filter(None, (schema, name))])


def _refuse_two_spellings(masks: Iterable[Mask]) -> None:
    """Refuse masks that spell a column in two ways: which one counts would depend on the table."""
    known: dict[tuple[bytes, bytes], str] = {}
    for each in masks:
        first = known.setdefault((folded(each.on), folded(each.column)), each.column)
        if first != each.column:
            raise BadRequest(
                f"the masks on {each.on} spell one column in two ways: {first} and {each.column}"
            )


def _is_for(identity: Identity | None, callers: Iterable[str]) -> bool:
    if identity is None:
        return EVERYBODY in callers
    mine = {EVERYBODY, *(f"{_GROUP}{group}" for group in identity.groups)}
    # Where people choose their names, a name must not pass for a group.
    if not identity.name.startswith(_GROUP):
        mine.add(identity.name)
    return not mine.isdisjoint(callers)


def _applies(identity: Identity | None, rule: RowFilter | Mask) -> bool:
    return _is_for(identity, rule.to) and not _is_for(identity, rule.but)


def _values(identity: Identity | None) -> Mapping[str, str | tuple[str, ...] | None]:
    if identity is None:
        return {"principal": None, "groups": ()}
    return {
        **identity.attributes,
        "principal": identity.name,
        "groups": tuple(sorted(identity.groups)),
    }


def _key(identity: Identity | None, catalog: str) -> tuple[str, frozenset[str], str, str]:
    """Return all that an Access depends on."""
    if identity is None:
        return "", frozenset(), "", catalog
    return f"={identity.name}", identity.groups, repr(sorted(identity.attributes.items())), catalog
