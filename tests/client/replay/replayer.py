"""Sends recorded requests to a server, and reads the replies as strictly as the simulation."""

from __future__ import annotations

import re
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
from tests.client.replay.recording import Call, Omitted, Step

from sparkport.testing.catalogs import CatalogCache
from sparkport.testing.contents import ContentsMap, flight_info
from sparkport.testing.exchange import Changed, Statement
from sparkport.testing.failures import ServerError
from sparkport.testing.headers import (
    PROCESS_SESSION,
    HeaderList,
    Headers,
    flight_path,
    printable_ascii,
)
from sparkport.testing.in_out_function import InOutCall
from sparkport.testing.objects import AttachedFunction, AttachedTable, bound_table
from sparkport.testing.reading import Reading, check_statistics_hold, read
from sparkport.testing.replies import Fields
from sparkport.testing.requests import ROWID
from sparkport.testing.scalar_function import ScalarCall
from sparkport.testing.scan import resolved, same_descriptor
from sparkport.testing.session import Session
from sparkport.testing.statistics import ReportedStatistics, _one_row, _Row
from sparkport.testing.table_function import BoundFunction, result_of
from sparkport.testing.transport import Connection

TIMEOUT = 20.0
DML = ("insert", "update", "delete")
LIMIT = re.compile(r" LIMIT (\d+)$")
Omissions = Callable[[str, pa.Schema, dict[str, pa.Table]], pa.Table]
"""Makes rows of batches that were not kept, from the SQL, the schema, and the scanned tables."""


@dataclass
class Outcome:
    """The outcome of a statement: rows of its scans by table, its change, or the refusal."""

    scanned: dict[str, pa.Table] = field(default_factory=dict)
    changed: Changed | None = None
    error: ServerError | None = None
    computed: list[pa.Table] = field(default_factory=list)
    """The results of functions: a scalar function's in a column `result`."""
    answered: list[bytes] = field(default_factory=list)
    """The results of an `airport_action`."""


class Replayer:
    """The client of a recording.

    Descriptors, tickets and transaction ids are those of the server it talks to.
    """

    def __init__(self, location: str, catalog: str, omissions: Omissions) -> None:
        headers = Headers(location, catalog, "main")
        self._session = Session(Connection(location, TIMEOUT), headers, lossless=True)
        self._cache = CatalogCache(self._session)
        self._omissions = omissions
        self._bound: BoundFunction | None = None
        self._flight: AttachedTable | None = None
        self._statistics: dict[tuple[str, str], ReportedStatistics] = {}
        self._traces: dict[str, str] = {}
        self._transaction: str | None = None
        self._version = 0
        self._rises = False

    def close(self) -> None:
        self._session.close()

    def run(self, step: Step) -> Outcome:
        """Make the calls of a statement in order, up to the first that the server refuses.

        Raises: ProtocolViolation for a reply that the real client could not accept.
        """
        outcome = Outcome()
        calls = deque(step.calls)
        try:
            while calls:
                self._call(step.sql, calls.popleft(), calls, outcome)
        except ServerError as error:
            outcome.error = error
        return outcome

    def _call(self, sql: str, call: Call, rest: deque[Call], outcome: Outcome) -> None:
        if call.operation in DML:
            outcome.changed = self._exchange(sql, call, rest, outcome)
        elif call.operation == "scalar_function":
            outcome.computed.append(self._scalar_function(sql, call, outcome))
        elif call.operation == "table_function_in_out":
            outcome.computed.append(self._in_out_function(sql, call, rest, outcome))
        elif call.action == "table_function_flight_info":
            self._bind(call)
        elif call.action == "column_statistics":
            self._ask_statistics(call)
        elif call.action == "endpoints":
            self._plan(sql, call, rest, outcome)
        elif call.action == "flight_info":
            outcome.scanned[call.path[3]] = self._travel(call, rest)
        elif call.method == "GetFlightInfo":
            self._take_flight(call)
        elif call.action is not None and "airport-catalog" not in call.headers:
            outcome.answered = self._session.connection.action(
                call.action, call.body, self._headers(call)
            )
        else:
            assert call.method == "DoAction", call.method
            self._act(call)

    def _plan(self, sql: str, call: Call, rest: deque[Call], outcome: Outcome) -> None:
        """The scan of a table, of a function's result, or of a flight that is in no catalog."""
        limit = LIMIT.search(sql)
        sent = int(limit[1]) if limit else 1
        if "airport-catalog" not in call.headers:
            assert self._flight is not None
            outcome.scanned["flight"] = self._scan(call, rest, self._flight, sent)
        elif call.path[2] == "table_function":
            assert self._bound is not None
            outcome.computed.append(self._scan(call, rest, self._bound.result, sent))
        else:
            outcome.scanned[call.path[3]] = self._scan(call, rest, self._table(call), sent)

    # ------------------------------------------------------------------------------------- actions

    def _act(self, call: Call) -> None:
        action = call.action
        assert action is not None
        if action == "list_schemas":
            assert call.parameters == {"catalog_name": self._session.catalog}
            self._cache.forget()
            self._cache.load()
            return
        body = call.parameters
        if action in ("drop_schema", "drop_table"):
            self._session.connection.action(action, call.body, self._headers(call))
            if action == "drop_schema":
                self._cache.remove_schema(body["name"])
            else:
                self._cache.remove_table(body["schema_name"], body["name"])
            self._changed(body)
            return
        answer = self._session.answer(action, call.body, self._headers(call))
        if action == "create_transaction":
            identifier = Fields.unpack(answer, action).optional_text("identifier")
            assert identifier is None or printable_ascii(identifier)
            self._transaction = identifier or None
        elif action == "catalog_version":
            self._learn_version(answer)
        elif action == "create_schema":
            self._cache.put_schema(body["schema"], ContentsMap.read(Fields.unpack(answer, action)))
            # IF NOT EXISTS cannot be told apart: the schema may have existed.
        elif action == "create_table":
            info = flight_info(answer, action)
            self._cache.put_table(self._cache.read_table(info, body["schema_name"], action))
            self._changed(body)
        else:
            altered = self._cache.read_table(flight_info(answer, action), body["schema"], action)
            assert altered.name == body.get("new_table_name", body["name"])
            self._cache.put_table(altered, instead_of=body["name"])
            self._changed(body)

    def _changed(self, body: dict[str, Any]) -> None:
        """Expect a higher version, unless the statement may have found nothing to do."""
        conditional = (
            "ignore_not_found",
            "if_column_exists",
            "if_column_not_exists",
            "if_field_not_exists",
        )
        if not any(body.get(key) for key in conditional) and body.get("on_conflict") != "ignore":
            self._rises = True

    def _learn_version(self, answer: bytes) -> None:
        fields = Fields.unpack(answer, "catalog_version")
        self._session.learn_version(fields)
        version = fields.unsigned("catalog_version")
        assert version > self._version if self._rises else version >= self._version, (
            "the catalog version did not rise"
        )
        self._version, self._rises = version, False

    # ------------------------------------------------------------------------------------- reading

    def _table(self, call: Call) -> AttachedTable:
        _, schema, _, name = call.path
        return self._cache.table(schema, name)

    def _scan(self, call: Call, rest: deque[Call], table: AttachedTable, sent: int = 1) -> pa.Table:
        """Return the rows of the columns that were asked for.

        A DoGet that was cancelled is cancelled after `sent` rows.
        """
        gets = []
        while rest and rest[0].method == "DoGet":
            gets.append(rest.popleft())
        column_ids = call.parameters["parameters"]["column_ids"]
        asked = [
            table.rowid if each == ROWID else table.columns[each]
            for each in column_ids
            if each != ROWID - 1
        ]
        columns = {column.name: column for column in asked if column is not None}
        reading = Reading(
            session=self._session,
            descriptor=table.descriptor,
            bound=table.arrow_schema,
            wanted=tuple(column.position for column in columns.values()),
            body=call.body_with(table.descriptor),
            headers=lambda action: self._headers(
                call if action or not gets else gets[0], table.descriptor
            ),
            rowid=None if table.rowid is None else table.rowid.position,
            hang="T24",
        )
        cancelled = any(get.status is None for get in gets)
        rows = read(reading, threads=1, limit=sent if cancelled else None)
        rows = rows.rename_columns(list(columns))
        self._check_statistics(table, rows)
        return rows

    def _travel(self, call: Call, rest: deque[Call]) -> pa.Table:
        """AT: `flight_info` to find the table, `flight_info` to bind it, then the scan (§4.6)."""
        now = self._table(call)
        answer = self._session.answer(
            "flight_info", call.body_with(now.descriptor), self._headers(call), crashes=False
        )
        found = self._cache.read_table(
            flight_info(answer, "flight_info"), now.schema, "flight_info"
        )
        while rest[0].action in ("catalog_version", "create_transaction"):
            self._act(rest.popleft())
        second = rest.popleft()
        assert second.action == "flight_info"
        headers = self._headers(second, now.descriptor)
        answer = self._session.answer(
            "flight_info", second.body_with(now.descriptor), headers, crashes=True
        )
        info = flight_info(answer, "flight_info")
        same_descriptor(info, now.descriptor, "flight_info")
        then = bound_table(info, now.schema, found.name, found.comment, "main", self._session.local)
        endpoints = rest.popleft()
        assert endpoints.action == "endpoints"
        return self._scan(endpoints, rest, then)

    def _take_flight(self, call: Call) -> None:
        """Take the flight of `airport_take_flight`, under this server's descriptor."""
        asked = call.descriptor
        name = asked.path[0].decode().split("/") if asked.path else []
        if len(name) == 4 and (known := self._cache.known_table(name[1], name[3])) is not None:
            asked = known.descriptor
        info = self._session.connection.flight_info(asked, self._headers(call, asked))
        same_descriptor(info, asked, "GetFlightInfo")
        self._flight = bound_table(
            info, "", "airport_take_flight", None, "main", self._session.local
        )

    def _ask_statistics(self, call: Call) -> None:
        table, body = self._table(call), call.parameters
        column = resolved(table, body["column_name"])
        assert column.type == body["type"]
        answer = self._session.answer(
            "column_statistics", call.body_with(table.descriptor), self._headers(call)
        )
        where = f"column_statistics of {table.name}.{column.name}"
        self._statistics[table.name, column.name] = _Row(_one_row(answer, where), where).read(
            column
        )

    def _check_statistics(self, table: AttachedTable, rows: pa.Table) -> None:
        """Check that statistics asked for before the scan hold for its rows (trap T28)."""
        for name in rows.column_names:
            known = self._statistics.get((table.name, name))
            if known is not None:
                wrong = check_statistics_hold(
                    rows.column(name), known.minimum, known.maximum, known.has_null
                )
                assert wrong is None, f"{table.name}.{name}: {wrong}"

    # ----------------------------------------------------------------------------------- functions

    def _function(self, call: Call) -> AttachedFunction:
        _, schema, kind, name = call.path
        found = self._cache.schema(schema).functions
        (function,) = (each for each in found if (each.kind, each.name) == (kind, name))
        return function

    def _bind(self, call: Call) -> None:
        function = self._function(call)
        body = call.body_with(function.descriptor)
        answer = self._session.answer(
            str(call.action), body, self._headers(call, function.descriptor)
        )
        self._bound = BoundFunction(function, result_of(self._session, function, answer), b"", "")

    def _scalar_function(self, sql: str, call: Call, outcome: Outcome) -> pa.Table:
        function = self._function(call)
        scalar = ScalarCall(self._session, function, call.sent_schema)
        exchange = self._session.connection.exchange(
            function.descriptor, self._headers(call, function.descriptor)
        )
        try:
            scalar.begin(exchange)
            answers = scalar.answers(exchange, self._batches(sql, call, outcome))
        except BaseException:
            exchange.cancel()
            raise
        finally:
            exchange.close()
        return pa.table({"result": pa.chunked_array(answers, function.arrow_schema.field(0).type)})

    def _in_out_function(
        self, sql: str, call: Call, rest: deque[Call], outcome: Outcome
    ) -> pa.Table:
        """First the exchange, then the calls of the scan that feeds it, as for a change."""
        assert self._bound is not None
        function = self._bound.function
        in_out = InOutCall(self._session, self._bound, call.sent_schema)
        exchange = self._session.connection.exchange(
            function.descriptor, self._headers(call, function.descriptor)
        )

        def source() -> Iterator[pa.RecordBatch]:
            while rest:
                scan = rest.popleft()
                outcome.scanned[scan.path[3]] = self._scan(scan, rest, self._table(scan))
            yield from self._batches(sql, call, outcome)

        schema = pa.schema(
            [pa.field(column.name, column.field.type) for column in self._bound.result.columns]
        )
        return pa.Table.from_batches(in_out.exchanged(exchange, source(), call.opening), schema)

    # ------------------------------------------------------------------------------------- writing

    def _exchange(self, sql: str, call: Call, rest: deque[Call], outcome: Outcome) -> Changed:
        """Replay the exchange, the calls of the scan that feeds it (trap T24), then the batches."""
        table = self._table(call)
        operation = call.operation
        assert operation in DML
        sent = sum(
            batch.rows if isinstance(batch, Omitted) else batch.num_rows for batch in call.batches()
        )

        def source() -> Iterator[pa.RecordBatch]:
            while rest:
                scan = rest.popleft()
                assert scan.action == "endpoints", scan
                outcome.scanned[scan.path[3]] = self._scan(
                    scan, rest, self._table(scan), max(1, sent)
                )
            yield from self._batches(sql, call, outcome)

        exchange = self._session.connection.exchange(
            table.descriptor, self._headers(call, table.descriptor)
        )
        statement = Statement(
            self._session, table, operation, call.sent_schema, source, call.returning
        )
        try:
            # `Statement.run` would make headers of its own.
            return statement._run(exchange)
        except BaseException:
            exchange.cancel()
            raise
        finally:
            exchange.close()

    def _batches(self, sql: str, call: Call, outcome: Outcome) -> Iterator[pa.RecordBatch]:
        recorded = list(call.batches())
        made: pa.Table | None = None
        if any(isinstance(batch, Omitted) for batch in recorded):
            made = self._omissions(sql, call.sent_schema, outcome.scanned)
        position = 0
        for batch in recorded:
            if made is None:
                assert isinstance(batch, pa.RecordBatch)
                yield batch
                continue
            rows = batch.num_rows if isinstance(batch, pa.RecordBatch) else batch.rows
            (again,) = made.slice(position, rows).combine_chunks().to_batches()
            position += rows
            if isinstance(batch, pa.RecordBatch):
                assert again.equals(batch), f"{sql}: the rows made are not those recorded"
                yield batch
            else:
                assert again.num_rows == rows
                assert again.slice(0, len(batch.first)).to_pylist() == batch.first
                yield again
        assert made is None or position == made.num_rows, sql

    # ------------------------------------------------------------------------------------- headers

    def _headers(self, call: Call, descriptor: flight.FlightDescriptor | None = None) -> HeaderList:
        """Return the recorded headers, with this session's values in place of placeholders."""
        made: HeaderList = []
        for name, recorded in call.headers.items():
            for value in recorded if isinstance(recorded, list) else [recorded]:
                replaced = self._value(name, value, descriptor)
                if replaced is not None:
                    made.append((name.encode(), replaced.encode("ascii")))
        # Most recordings are of a server without transactions; with one, the client sends the id
        # (airport §2.2).
        path = str(call.headers.get("airport-flight-path", "/table_function/"))
        of_table = "/table_function/" not in path or call.action == "column_statistics"
        in_transaction = of_table and "airport-catalog" in call.headers
        if in_transaction and self._transaction is not None:
            made.append((b"airport-transaction-id", self._transaction.encode("ascii")))
        return made

    def _value(
        self, name: str, value: str, descriptor: flight.FlightDescriptor | None
    ) -> str | None:
        match name:
            case "airport-client-session-id":
                return PROCESS_SESSION
            case "authority":
                return self._session.connection.location
            case "airport-trace-id":
                return self._traces.setdefault(value, str(uuid.uuid4()))
            case "airport-flight-path":
                assert descriptor is not None
                return flight_path(descriptor)
            case "airport-transaction-id":
                return None  # added below
            case _:
                return value
