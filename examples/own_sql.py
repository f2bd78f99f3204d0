"""A catalog that runs SQL by itself, for clients that have no DuckDB: ADBC, JDBC.

Run `python examples/own_sql.py`, or `sparkport serve examples/own_sql.py:catalog`. DuckDB attaches
it like any other catalog:

    INSTALL airport FROM community; LOAD airport;
    ATTACH 'books' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');

    SELECT * FROM books.library.loans;                    -- ('ada', 3), ('grace', 5), ('ada', 2)
    SELECT sum(days) FROM books.library.loans;            -- 10
    SELECT who FROM books.library.loans WHERE days > 4;   -- grace

A client of Flight SQL sends statements, which `Books.analyse_sql` takes. With ADBC, in Python:

    from adbc_driver_flightsql import dbapi

    with dbapi.connect("grpc://127.0.0.1:50051", autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT who, count(*) AS n FROM loans GROUP BY who ORDER BY who")
            print(cursor.fetchall())                      # [('ada', 2), ('grace', 1)]
            cursor.execute("SELECT days FROM loans WHERE who = ?", ("grace",))
            print(cursor.fetchall())                      # [(5,)]
            cursor.execute("DELETE FROM loans")
                # ProgrammingError: INVALID_ARGUMENT: … this catalog answers queries only
"""

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

import sparkport as sp
from sparkport.catalog import SqlCatalog, SqlStatement

LOANS = pa.table({"who": ["ada", "grace", "ada"], "days": [3, 5, 2]})


class Loans(sp.Table):
    name = "loans"
    comment = "Who has borrowed a book, and for how long"
    arrow_schema = LOANS.schema

    def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> list[pa.RecordBatch]:
        return LOANS.to_batches()


class Library(sp.Schema):
    name = "library"
    comment = ""

    def tables(self, ctx: sp.Context) -> Sequence[sp.Table]:
        return [Loans()]


class Books(sp.Catalog, SqlCatalog):
    """Here DuckDB answers. It could be any engine, or a service that is asked for its rows."""

    name = "books"

    def __init__(self) -> None:
        # Statements are written by others: they reach no file, and change no setting.
        self._engine = duckdb.connect(
            config={"enable_external_access": False, "lock_configuration": True}
        )
        self._engine.register("given", LOANS)
        self._engine.execute("CREATE TABLE loans AS FROM given")

    def schemas(self, ctx: sp.Context) -> Sequence[sp.Schema]:
        return [Library()]

    # Called when a query is prepared (then all markers are NULL), planned, and read.
    def analyse_sql(
        self, ctx: sp.Context, text: str, parameters: pa.RecordBatch | None = None
    ) -> SqlStatement:
        return Query(self._engine.cursor(), text, parameters)


class Query(SqlStatement):
    """One statement. Nothing of it runs before its rows are read."""

    def __init__(
        self, engine: duckdb.DuckDBPyConnection, text: str, parameters: pa.RecordBatch | None
    ) -> None:
        try:
            statements = engine.extract_statements(text)
            if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
                raise sp.BadRequest("this catalog answers queries only, one at a time")
            self._markers = len(statements[0].named_parameters)
            rows = [] if parameters is None else parameters.to_pylist()
            values = list(rows[0].values()) if rows else [None] * self._markers
            self._rows = engine.sql(text, params=values)
            # No rows yet, only their columns.
            self._arrow_schema = self._rows.limit(0).to_arrow_table().schema
        except duckdb.Error as error:
            raise sp.BadRequest(str(error)) from error

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema  # None would say that the statement changes something

    @property
    def parameters(self) -> pa.Schema:
        return pa.schema([(f"parameter_{at}", pa.string()) for at in range(1, self._markers + 1)])

    def rows(self, ctx: sp.Context) -> Iterator[pa.RecordBatch]:
        yield from self._rows.to_arrow_table().to_batches()

    def execute(self, ctx: sp.Context) -> int:
        raise sp.BadRequest("this catalog changes nothing")


catalog = Books()

if __name__ == "__main__":
    sp.serve(catalog, "grpc://127.0.0.1:50051")
