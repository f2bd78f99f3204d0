"""Sends recorded requests to a server, and reads the replies as strictly as the simulation of the client does."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
from tests.client.replay.recording import Call, Omitted, Step

from sparkport.testing.catalogs import CatalogCache
from sparkport.testing.contents import Contents, flight_info
from sparkport.testing.exchange import Changed, Statement
from sparkport.testing.failures import ServerError
from sparkport.testing.headers import PROCESS_SESSION, HeaderList, Headers, flight_path, printable_ascii
from sparkport.testing.objects import AttachedTable, bound_table
from sparkport.testing.reading import Reading, read
from sparkport.testing.replies import Fields
from sparkport.testing.requests import ROWID
from sparkport.testing.scan import same_descriptor
from sparkport.testing.session import Session
from sparkport.testing.transport import Connection

TIMEOUT = 20.0
DML = ("insert", "update", "delete")
FUNCTIONS = ("scalar_function", "table_function_in_out")
Omissions = Callable[[str, pa.Schema, dict[str, pa.Table]], pa.Table]
"""Makes the rows of batches that were not kept: from the SQL, the schema sent, and the tables scanned for it."""


@dataclass
class Outcome:
    """What came of one statement: the rows of its scans by table, the change it made, or the server's refusal."""

    scanned: dict[str, pa.Table] = field(default_factory=dict)
    changed: Changed | None = None
    error: ServerError | None = None
    left_out: list[str] = field(default_factory=list)
    """Calls of functions, which are not replayed."""


class Replayer:
    """The client of one recording. Descriptors, tickets and transaction ids are those of the server it talks to."""

    def __init__(self, location: str, catalog: str, omissions: Omissions) -> None:
        headers = Headers(location, catalog, "main")
        self._session = Session(Connection(location, TIMEOUT), headers, lossless=True)
        self._cache = CatalogCache(self._session)
        self._omissions = omissions
        self._traces: dict[str, str] = {}
        self._transaction: str | None = None
        self._version = 0
        self._rises = False

    def close(self) -> None:
        self._session.close()

    def run(self, step: Step) -> Outcome:
        """Make the calls of a statement in their order, up to the first that the server refuses.

        Raises: ProtocolViolation for a reply that the real client could not take.
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
        if self._is_function(call):
            outcome.left_out.append(call.action or str(call.operation))
            if call.action == "endpoints":
                rest.popleft()  # its DoGet
        elif call.method == "DoExchange":
            outcome.changed = self._exchange(sql, call, rest, outcome)
        elif call.action == "endpoints":
            outcome.scanned[call.path[3]] = self._scan(call, rest, self._table(call))
        elif call.action == "flight_info":
            outcome.scanned[call.path[3]] = self._travel(call, rest)
        else:
            assert call.method == "DoAction", call.method
            self._act(call)

    def _is_function(self, call: Call) -> bool:
        if call.operation in FUNCTIONS or call.action == "table_function_flight_info":
            return True
        return call.action == "endpoints" and call.path[2] != "table"

    # --------------------------------------------------------------------------------------------------- actions

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
            self._cache.put_schema(body["schema"], Contents.read(Fields.unpack(answer, action)))
            # IF NOT EXISTS cannot be told apart: the schema may have been there.
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
        """From now on the version is a higher one, unless the statement may have found nothing to do."""
        conditional = ("ignore_not_found", "if_column_exists", "if_column_not_exists", "if_field_not_exists")
        if not any(body.get(key) for key in conditional) and body.get("on_conflict") != "ignore":
            self._rises = True

    def _learn_version(self, answer: bytes) -> None:
        fields = Fields.unpack(answer, "catalog_version")
        self._session.learn_version(fields)
        version = fields.unsigned("catalog_version")
        assert version > self._version if self._rises else version >= self._version, "the catalog version did not rise"
        self._version, self._rises = version, False

    # ---------------------------------------------------------------------------------------------------- reading

    def _table(self, call: Call) -> AttachedTable:
        _, schema, _, name = call.path
        return self._cache.table(schema, name)

    def _scan(self, call: Call, rest: deque[Call], table: AttachedTable, sent: int = 1) -> pa.Table:
        """The rows of the columns that were asked for. A DoGet that was cancelled is cancelled after `sent` rows."""
        gets = []
        while rest and rest[0].method == "DoGet":
            gets.append(rest.popleft())
        column_ids = call.parameters["parameters"]["column_ids"]
        asked = [table.rowid if each == ROWID else table.columns[each] for each in column_ids if each != ROWID - 1]
        columns = {column.name: column for column in asked if column is not None}
        reading = Reading(
            session=self._session,
            descriptor=table.descriptor,
            bound=table.arrow_schema,
            wanted=tuple(column.position for column in columns.values()),
            body=call.body_with(table.descriptor),
            headers=lambda action: self._headers(call if action or not gets else gets[0], table.descriptor),
            rowid=None if table.rowid is None else table.rowid.position,
            hang="T24",
        )
        cancelled = any(get.status is None for get in gets)
        rows = read(reading, threads=1, limit=sent if cancelled else None)
        return rows.rename_columns(list(columns))

    def _travel(self, call: Call, rest: deque[Call]) -> pa.Table:
        """AT: `flight_info` to look the table up, `flight_info` to bind it, then the scan (airport §4.6)."""
        now = self._table(call)
        answer = self._session.answer("flight_info", call.body_with(now.descriptor), self._headers(call), crashes=False)
        found = self._cache.read_table(flight_info(answer, "flight_info"), now.schema, "flight_info")
        while rest[0].action in ("catalog_version", "create_transaction"):
            self._act(rest.popleft())
        second = rest.popleft()
        assert second.action == "flight_info"
        headers = self._headers(second, now.descriptor)
        answer = self._session.answer("flight_info", second.body_with(now.descriptor), headers, crashes=True)
        info = flight_info(answer, "flight_info")
        same_descriptor(info, now.descriptor, "flight_info")
        then = bound_table(info, now.schema, found.name, found.comment, "main", self._session.local)
        endpoints = rest.popleft()
        assert endpoints.action == "endpoints"
        return self._scan(endpoints, rest, then)

    # ---------------------------------------------------------------------------------------------------- writing

    def _exchange(self, sql: str, call: Call, rest: deque[Call], outcome: Outcome) -> Changed:
        """First the exchange, then the calls of the scan that feeds it (trap T24), then the recorded batches."""
        table = self._table(call)
        operation = call.operation
        assert operation in DML
        sent = sum(batch.rows if isinstance(batch, Omitted) else batch.num_rows for batch in call.batches())

        def source() -> Iterator[pa.RecordBatch]:
            while rest:
                scan = rest.popleft()
                assert scan.action == "endpoints", scan
                outcome.scanned[scan.path[3]] = self._scan(scan, rest, self._table(scan), max(1, sent))
            yield from self._batches(sql, call, outcome)

        exchange = self._session.connection.exchange(table.descriptor, self._headers(call, table.descriptor))
        statement = Statement(self._session, table, operation, call.sent_schema, source, call.returning)
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

    # ---------------------------------------------------------------------------------------------------- headers

    def _headers(self, call: Call, descriptor: flight.FlightDescriptor | None = None) -> HeaderList:
        """The recorded ones, with this session's values where the recording has placeholders."""
        made: HeaderList = []
        for name, recorded in call.headers.items():
            for value in recorded if isinstance(recorded, list) else [recorded]:
                replaced = self._value(name, value, descriptor)
                if replaced is not None:
                    made.append((name.encode(), replaced.encode("ascii")))
        # Most recordings are of a server without transactions; with one, the client sends the id (airport §2.2).
        of_table = "airport-flight-path" in call.headers
        if of_table and self._transaction is not None:
            made.append((b"airport-transaction-id", self._transaction.encode("ascii")))
        return made

    def _value(self, name: str, value: str, descriptor: flight.FlightDescriptor | None) -> str | None:
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
