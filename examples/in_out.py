"""In/out functions: DuckDB sends the rows of a subquery, and Python answers with rows of its own.

Run `python examples/in_out.py`, or `sparkport serve examples/in_out.py:catalog`. Then, in DuckDB:

    INSTALL airport FROM community; LOAD airport;
    ATTACH 'rows' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');

    SELECT * FROM rows.work.words((SELECT 'to be or not to be'));  -- to, be, or, not, to, be
    SELECT word, count(*)
        FROM rows.work.words((FROM (VALUES ('to be'), ('or not to be')) AS v(line)))
        GROUP BY ALL ORDER BY ALL;             -- ('be', 2), ('not', 1), ('or', 1), ('to', 2)
    SELECT * FROM rows.work.filled((SELECT i, nullif(i % 2, 0) AS odd FROM range(5000) AS r(i)));
                                               -- ('i', 5000), ('odd', 2500)
    SELECT * FROM rows.work.numbered(10, (FROM (VALUES ('a'), ('b')) AS v(letter)));
                                               -- ('a', 10), ('b', 11)
"""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

import sparkport as sp

catalog = sp.CatalogBuilder("rows")
work = catalog.schema("work")


# With `pa.RecordBatch` the function is called for each batch that DuckDB sends, of up to 2048 rows.
@work.table_function(returns=pa.schema([("word", pa.string())]))
def words(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The words in the first column."""
    text = rows.column(0).cast(pa.string())
    return pa.record_batch({"word": pc.list_flatten(pc.utf8_split_whitespace(text))})


FILLED = pa.schema([("name", pa.string()), ("filled", pa.int64())])


# With `pa.Table` it gets an iterator over all batches, and can answer after the last batch.
@work.table_function(returns=FILLED)
def filled(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """How many values each column has that are not NULL."""
    counts: Counter[str] = Counter()
    for batch in rows:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            counts[name] += len(column) - column.null_count
    yield pa.record_batch(
        {"name": list(counts.keys()), "filled": list(counts.values())}, schema=FILLED
    )


# The columns of the result may depend on the arguments and on the columns of the subquery.
def with_number(rows: pa.Schema) -> pa.Schema:
    return rows.append(pa.field("number", pa.int64()))


# Other parameters come first, and the subquery comes last.
@work.table_function(returns=with_number)
def numbered(first: pa.int64(), rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        yield batch.append_column(
            "number", pa.array(range(first, first + batch.num_rows), pa.int64())
        )
        first += batch.num_rows


if __name__ == "__main__":
    sp.serve(catalog, "grpc://127.0.0.1:50051")
