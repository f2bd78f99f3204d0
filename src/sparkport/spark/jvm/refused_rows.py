"""What Spark says of rows that a table cannot take, in the words of our own checks of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sparkport.errors import BadRequest, ConstraintViolation, SparkportError
from sparkport.spark.jvm.errors import links_of

__all__ = ["refused_rows"]

_NULL = re.compile(
    r"\[NOT_NULL_ASSERT_VIOLATION\][^\n]*:\s*(.+?)\s*(If the schema|SQLSTATE|$)", re.DOTALL
)
_TWICE = re.compile(r"\[MERGE_CARDINALITY_VIOLATION[\].]")


@contextmanager
def refused_rows(table: str) -> Iterator[None]:
    """Raise Spark's errors about rows as those that a statement without Spark would raise.

    All other errors pass as they are. Raises: ConstraintViolation for NULL where the table has
    none; BadRequest for a row that a MERGE would change twice.
    """
    try:
        yield
    except SparkportError:
        raise
    except Exception as error:
        for link in links_of(error):
            if (found := _NULL.search(link.message)) is not None:
                column = ".".join(found[1].split())
                message = f"NOT NULL constraint failed: {table}.{column}"
                raise ConstraintViolation(message, without_values=message) from error
            if _TWICE.search(link.message):
                raise BadRequest(
                    f"MERGE: several rows of the source match the same row of table {table}, so "
                    "that it is not clear what becomes of it: make the source have at most one, "
                    "for example by GROUP BY, and run it again"
                ) from error
        raise
