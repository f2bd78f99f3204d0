"""Serve a folder of Parquet files: the server reads them, or it tells DuckDB where they are.

Run `python examples/parquet_folder.py`, or `sparkport serve examples/parquet_folder.py:catalog`.
Then, in DuckDB:

    INSTALL airport FROM community; LOAD airport;
    ATTACH 'files' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');

    SELECT count(*), sum(amount) FROM files.sales.served;                -- (300, 44850.0)
    SELECT count(*), sum(amount) FROM files.sales.referenced;            -- (300, 44850.0)
    SELECT min(id) FROM files.sales.served WHERE day >= '2026-02-01';    -- 100
    SELECT parse_filename(file) AS file, min(id) FROM files.sales.called GROUP BY ALL ORDER BY ALL;
        -- ('2026-01.parquet', 0), ('2026-02.parquet', 100), ('2026-03.parquet', 200)
"""

import datetime
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import sparkport as sp
from sparkport.catalog import FileReference, FunctionCall

# Some files to serve: a temporary folder that lasts as long as the server. Put the path of your own
# here instead.
temporary = tempfile.TemporaryDirectory(prefix="sparkport-")
folder = Path(temporary.name)
columns = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("day", pa.date32())])
for month in (1, 2, 3):
    ids = range((month - 1) * 100, month * 100)
    day = datetime.date(2026, month, 1)
    rows = pa.table(
        {"id": ids, "amount": [float(each) for each in ids], "day": [day] * 100}, schema=columns
    )
    pq.write_table(rows, folder / f"2026-{month:02}.parquet")

catalog = sp.CatalogBuilder("files")
sales = catalog.schema("sales")

# The server reads the files and sends the rows. The list of files is fixed when the server starts;
# folders such as `year=2026` become columns.
sales.table("served", folder)

# DuckDB reads the files itself, and the server only tells it which. It must be able to reach them
# by these names: paths on the same machine, or `s3://…` and `https://…` with DuckDB's own secrets.
# So say what their columns are.
files = sorted(folder.glob("*.parquet"))
sales.table(
    "referenced", [FileReference("parquet", str(file)) for file in files], arrow_schema=columns
)

# DuckDB calls one of its own table functions, with options: here a column that says which file a
# row comes from.
call = FunctionCall("read_parquet", (f"{folder}/*.parquet",), {"filename": "file"})
sales.table("called", call, arrow_schema=columns.append(pa.field("file", pa.string())))

if __name__ == "__main__":
    sp.serve(catalog, "grpc://127.0.0.1:50051")
