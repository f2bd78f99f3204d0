"""The client: what DuckDB does with an attached catalog, statement by statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.testing import in_out_function, scalar_function, scan, table_function, write
from sparkport.testing.ddl import DDLStatements, TableOptions
from sparkport.testing.headers import new_trace
from sparkport.testing.in_out_function import InputRows
from sparkport.testing.scalar_function import Columns
from sparkport.testing.scan import NOW, Predicate
from sparkport.testing.statistics import ReportedStatistics, column_statistics
from sparkport.testing.write import Changed, Rows

__all__ = ["DuckDBClient"]


class DuckDBClient(DDLStatements):
    """DuckDB with an attached catalog: as strict as the real client, with clearer errors.

    Every method that is an SQL statement sends exactly the calls that DuckDB sends for it, in that
    order, with those headers and bodies. It raises `ProtocolViolation` for a reply that would
    crash, hang or confuse the real client, `ServerError` for the server's own errors, and
    `ClientSideError` for what DuckDB itself refuses. No call outlives `timeout` seconds.

    `line` is the client's: "main" (for DuckDB 1.5) or "v1.4". `token` is the token of a secret with
    the location as its scope, sent with every call. `attach_token` is the token of the ATTACH
    option, which DuckDB does not send with scans and writes (trap T12). `arrow_lossless` is
    DuckDB's setting `arrow_lossless_conversion`. With `garbled_null_booleans` the client has the
    defect of DuckDB 1.5.0 under that setting (airport §13.3). `user_headers` go with `take_flight`.

    Conditions and expressions are DuckDB SQL, evaluated by DuckDB itself. Like a DuckDB connection,
    a client is for one thread at a time.
    """

    # ------------------------------------------------------------------------------------- reading

    def scan(
        self,
        schema: str,
        table: str,
        columns: Sequence[str] | None = None,
        *,
        where: Predicate | None = None,
        filter: str | None = None,
        at: tuple[str, str] | None = None,
        threads: int = 4,
        limit: int | None = None,
    ) -> pa.Table:
        """SELECT: return columns of the rows that fulfil `where`, with the published types.

        `rowid` names the row id. `where` is SQL, which is pushed down as filter JSON and applied
        again to the rows that arrive, or a function from rows to a mask, which is not pushed down.
        `filter` sends its filter JSON instead; without `where`, the rows then come back as the
        server sent them. `at` is a unit and a value, for instance ("VERSION", "3"). Endpoints are
        read on up to `threads` threads.
        """
        session = self._session
        with session.statement():
            bound = self._bound(schema, table, at)
            return scan.scan(session, bound, columns, where, filter, at or NOW, threads, limit)

    def count(self, schema: str, table: str, *, threads: int = 4) -> int:
        """`SELECT count(*)`."""
        session = self._session
        with session.statement():
            return scan.count(session, self._bound(schema, table), threads)

    def statistics(self, schema: str, table: str, column: str) -> ReportedStatistics | None:
        """Return what the optimiser learns of a column; None where the table has no statistics."""
        session = self._session
        with session.statement():
            bound = self._bound(schema, table)
            found = scan.resolved(bound, column)
            if not bound.produces_statistics or found is bound.rowid:
                return None
            return column_statistics(session, bound, found, new_trace())

    def take_flight(
        self,
        descriptor: flight.FlightDescriptor | str | bytes | Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        at: tuple[str, str] | None = None,
        threads: int = 4,
    ) -> pa.Table:
        """`airport_take_flight`: a text is a command, a list of texts a path (airport §11)."""
        if isinstance(descriptor, str | bytes):
            descriptor = flight.FlightDescriptor.for_command(descriptor)
        elif not isinstance(descriptor, flight.FlightDescriptor):
            descriptor = flight.FlightDescriptor.for_path(*descriptor)
        sent = {**self._session.headers.user, **(headers or {})}
        return scan.take_flight(self._session, descriptor, sent, at or NOW, threads)

    def action(self, name: str, body: bytes | str = b"") -> list[bytes]:
        """`airport_action`: return the results as they are."""
        packed = body.encode() if isinstance(body, str) else body
        return self._session.connection.action(name, packed, self._session.headers.of_call(name))

    def list_flights(
        self, criteria: bytes = b"", *, json_filters: str = ""
    ) -> list[flight.FlightInfo]:
        """`airport_flights`, without the bug that fails the real client afterwards (trap T49)."""
        headers = self._session.headers.of_call(airport_duckdb_json_filters=json_filters)
        return self._session.connection.flights(criteria, headers)

    # ------------------------------------------------------------------------------- changing rows

    def insert(
        self,
        schema: str,
        table: str,
        rows: Rows,
        *,
        returning: bool = False,
    ) -> Changed:
        """`INSERT INTO table BY NAME … [RETURNING *]`: missing columns get their default, or NULL.

        An iterable of batches is consumed while the exchange is open. If it raises, the statement
        fails as in DuckDB: the exchange is half-closed as if all had been sent (trap T22).
        """
        session = self._session
        with session.statement():
            return write.insert(session, self._bound(schema, table), rows, returning)

    def insert_select(
        self,
        schema: str,
        table: str,
        source: tuple[str, str],
        select: Mapping[str, str] | None = None,
        *,
        where: str | None = None,
        returning: bool = False,
    ) -> Changed:
        """`INSERT INTO table BY NAME SELECT … FROM source WHERE …`.

        The exchange opens first, then the scan (trap T24). `select` gives SQL over the source for
        columns of the table; by default columns of the same name are copied.
        """
        session = self._session
        with session.statement():
            bound, scanned = self._bound(schema, table), self._bound(*source)
            return write.insert_select(session, bound, scanned, select, where, returning)

    def update(
        self,
        schema: str,
        table: str,
        assignments: Mapping[str, Any],
        where: Predicate | None = None,
        *,
        returning: bool = False,
    ) -> Changed:
        """`UPDATE table SET … WHERE … [RETURNING *]`: the exchange opens first (trap T24).

        A text is an SQL expression over the row; a function gets the scanned rows and returns the
        new values; anything else is a constant.
        """
        session = self._session
        with session.statement():
            return write.update(
                session, self._modified(schema, table), assignments, where, returning
            )

    def update_rows(
        self, schema: str, table: str, rows: pa.Table, *, returning: bool = False
    ) -> Changed:
        """Run the exchange of an UPDATE without a scan: `rows` include the column `rowid`."""
        session = self._session
        with session.statement():
            return write.update_rows(session, self._modified(schema, table), rows, returning)

    def delete(
        self, schema: str, table: str, where: Predicate | None = None, *, returning: bool = False
    ) -> Changed:
        """`DELETE FROM table WHERE … [RETURNING *]`: the exchange opens first (trap T24)."""
        session = self._session
        with session.statement():
            return write.delete(session, self._modified(schema, table), where, returning)

    def delete_rows(
        self, schema: str, table: str, row_ids: Sequence[Any] | pa.Array, *, returning: bool = False
    ) -> Changed:
        """Run the exchange of a DELETE without a scan: the row ids are given."""
        session = self._session
        with session.statement():
            return write.delete_rows(session, self._modified(schema, table), row_ids, returning)

    def create_table_as(self, schema: str, name: str, rows: pa.Table) -> Changed:
        """`CREATE TABLE name AS …`: `create_table`, then INSERT into its answer (airport §4.12)."""
        session = self._session
        with session.statement():
            created = self._created(schema, name, rows.schema, TableOptions())
            return write.insert(session, created, rows, returning=False)

    # ----------------------------------------------------------------------------------- functions

    def call(
        self,
        schema: str,
        function: str,
        arguments: Columns,
        *,
        rows: int | None = None,
        threads: int = 1,
    ) -> pa.ChunkedArray:
        """`SELECT function(…)` over many rows: return the results in their order (airport §9.1).

        `arguments` are columns in the order of the parameters. Their types choose the overload, and
        they are cast to the types of its parameters. Without arguments, `rows` says how many
        results are wanted. The rows are divided among `threads` exchanges that are open at the same
        time.
        """
        session = self._session
        with session.statement():
            session.transaction()
            return scalar_function.call(
                session, self.functions(schema), function, arguments, rows, threads
            )

    def table_function(
        self,
        schema: str,
        function: str,
        *arguments: Any,
        named: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | None = None,
        filter: str | None = None,
        threads: int = 4,
        limit: int | None = None,
    ) -> pa.Table:
        """`SELECT columns FROM function(…, name := …) WHERE …`; all but the arguments as in `scan`.

        Arguments are Arrow scalars, or Python values with the type that DuckDB gives them as
        parameters of a statement: 5 is an INTEGER, 5.5 a DOUBLE, Decimal("5.5") a DECIMAL(2,1).
        """
        session = self._session
        with session.statement():
            session.transaction()
            bound = table_function.bind(
                session, self.functions(schema), function, arguments, named or {}
            )
            return table_function.scan(session, bound, columns, where, filter, threads, limit)

    def in_out(
        self,
        schema: str,
        function: str,
        *arguments: Any,
        rows: InputRows,
        where: Predicate | None = None,
    ) -> pa.Table:
        """`SELECT * FROM function(…, (SELECT …)) WHERE …` (airport §9.3).

        `rows` are those of the subquery.
        """
        session = self._session
        with session.statement():
            session.transaction()
            found, batches = in_out_function.in_out(
                session, self.functions(schema), function, arguments, rows, where
            )
            return pa.Table.from_batches(batches, schema=found)

    def in_out_batches(
        self,
        schema: str,
        function: str,
        *arguments: Any,
        rows: InputRows,
        where: Predicate | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Call an in/out function as `in_out` does, but yield batches while `rows` is consumed.

        Neither input nor output is kept. The statement lasts until the batches are exhausted or
        closed. If they are closed early, DuckDB ends the exchange as for LIMIT.
        """
        session = self._session
        with session.statement():
            session.transaction()
            functions = self.functions(schema)
            yield from in_out_function.in_out(session, functions, function, arguments, rows, where)[
                1
            ]
