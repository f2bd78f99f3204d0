"""`column_statistics`: what DuckDB's optimiser learns and trusts (airport §4.9, T28)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa

from sparkport.catalog import (
    ColumnStatistics,
    Context,
    Privilege,
    StatisticsTable,
    TransactionManager,
)
from sparkport.catalog.names import own_spellings
from sparkport.engine.statistics import takes_statistics
from sparkport.errors import CatalogFault, NotFound, SparkportError, Unsupported
from sparkport.service import scan
from sparkport.service.calls import Call
from sparkport.service.objects import PublishedTable
from sparkport.wire.statistics import ColumnStatisticsRequest, encode_column_statistics

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["column_statistics"]

_log = logging.getLogger(__name__)


def column_statistics(
    service: Service, call: Call, request: ColumnStatisticsRequest
) -> Iterator[bytes]:
    """Answer with what the table says of the column, or else with what holds for its type.

    An error would fail a query that could do without statistics, so a table that tells nonsense
    does not raise one.

    Raises: NotFound, StaleDescriptor, TransactionNotActive; Unsupported for a type that the client
    would misread.
    """
    ctx, bound = scan.bind(service, call, request.descriptor, None)
    bound.require(ctx, Privilege.READ)
    field = _column(bound, request.column)
    if not takes_statistics(field):
        raise Unsupported(
            f"there are no statistics of columns of DuckDB's type {request.type[:100]}"
        )
    yield _answer(service, ctx, bound, field)


def _column(bound: PublishedTable, name: str) -> pa.Field:
    own = own_spellings(bound.column_names)(name)
    if own not in bound.column_names:
        raise NotFound(f"table {bound.title} has no column {name[:100]}")
    own_types, *_ = bound.forms[0]  # bounds tell their type themselves (airport §4.9)
    return own_types.field(own)


def _answer(service: Service, ctx: Context, bound: PublishedTable, field: pa.Field) -> bytes:
    try:
        return _encoded(_known(service, ctx, bound, field), field.type)
    except CatalogFault as fault:
        _log_once(service, bound, field.name, fault)
        return _encoded(_UNKNOWN, field.type)


_UNKNOWN = ColumnStatistics()
_MOST_ANSWERS = 1_024
_answers: dict[tuple[int, pa.DataType], tuple[ColumnStatistics, bytes]] = {}


def _encoded(known: ColumnStatistics, data_type: pa.DataType) -> bytes:
    """The encoded answer, remembered by the identity of the statistics, which tables cache."""
    key = (id(known), data_type)
    answer = _answers.get(key)
    if answer is None:
        answer = (known, encode_column_statistics(known, data_type))
        if len(_answers) >= _MOST_ANSWERS:
            _answers.clear()
        _answers[key] = answer
    return answer[1]


def _known(
    service: Service, ctx: Context, bound: PublishedTable, field: pa.Field
) -> ColumnStatistics:
    table = bound.table
    if not isinstance(table, StatisticsTable) or not table.offers_statistics:
        return _UNKNOWN
    if isinstance(bound.registered.catalog, TransactionManager) and ctx.transaction_id is None:
        return _UNKNOWN  # nothing tells the scan that will follow to read the same rows
    try:
        known: object = table.column_statistics(ctx, field.name)
        if known is not None and not isinstance(known, ColumnStatistics):
            raise CatalogFault(f"column_statistics returned {type(known).__name__}")
        return _UNKNOWN if known is None else known
    except SparkportError:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        _log_once(service, bound, field.name, error)
        return _UNKNOWN


_MOST_LOGGED = 1_000
_logged: WeakKeyDictionary[Service, set[tuple[str, str, str]]] = WeakKeyDictionary()


def _log_once(service: Service, bound: PublishedTable, column: str, error: Exception) -> None:
    """Log an error once: the client asks several times for every statement."""
    known, key = _logged.setdefault(service, set()), (bound.title, column, str(error)[:200])
    if key in known:
        return
    if len(known) >= _MOST_LOGGED:
        known.clear()
    known.add(key)
    _log.warning(
        "table %s: the statistics of column %s are not used", bound.title, column, exc_info=error
    )
