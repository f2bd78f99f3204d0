"""Python functions that SQL calls: scalar functions for each row, table functions in FROM.

Run `python examples/functions.py`, or `sparkport serve examples/functions.py:catalog`. With
`--warehouse ./lake --into lake` that command adds the functions to a lake: they are called
`lake.maths.gross` and so on. Then, in DuckDB:

    INSTALL airport FROM community; LOAD airport;
    ATTACH 'tools' (TYPE airport, LOCATION 'grpc://127.0.0.1:50051');

    SELECT tools.maths.gross(100), tools.maths.gross(100, 0.5);              -- (120.0, 150.0)
    SELECT tools.maths.gross(net) FROM (VALUES (1), (NULL)) AS prices(net);  -- 1.2, NULL
    SELECT tools.maths.joined('a', 'b', 'c');                                -- a-b-c
    SELECT i, tools.maths.ticket() FROM range(3) AS r(i);                    -- (0, 1), (1, 2), …
    SELECT * FROM tools.maths.countdown(3);                                  -- 3, 2, 1
    SELECT sum(n) FROM tools.maths.countdown(10, step := 5);                 -- 15
    SELECT * FROM tools.maths.countdown(3, step := 0);
        -- Invalid Input Error: the step must be at least 1, not 0
"""

import itertools

import pyarrow as pa
import pyarrow.compute as pc

import sparkport as sp

catalog = sp.CatalogBuilder("tools")
maths = catalog.schema("maths")


# Annotations are Arrow types, and arguments Arrow arrays: a function sees many rows at once. A
# parameter with a default may be left out. "consistent" lets DuckDB call it only once for
# constants, "propagate" keeps NULLs away from it.
@maths.scalar_function(stability="consistent", nulls="propagate")
def gross(net: pa.float64(), rate: pa.float64() = 0.2) -> pa.float64():
    """The price with tax."""
    return pc.multiply(net, pc.add(1.0, rate))


# One value or several.
@maths.scalar_function(stability="consistent")
def joined(*texts: pa.string()) -> pa.string():
    return pc.binary_join_element_wise(*texts, "-")


numbers = itertools.count(1)


# A function without parameters asks how many values are wanted. Unless it says otherwise it is
# called for every row.
@maths.scalar_function
def ticket(rows: sp.RowCount) -> pa.int64():
    return pa.array(itertools.islice(numbers, rows), pa.int64())


# A table function gets Python values. It returns a table, or yields batches. What stands after `*`
# is passed by name.
@maths.table_function(returns=pa.schema([("n", pa.int64())]))
def countdown(start: pa.int64(), *, step: pa.int64() = 1) -> pa.Table:
    """From a number down to 1."""
    if step < 1:
        raise sp.BadRequest(f"the step must be at least 1, not {step}")
    return pa.table({"n": pa.array(range(start, 0, -step), pa.int64())})


if __name__ == "__main__":
    sp.serve(catalog, "grpc://127.0.0.1:50051")
