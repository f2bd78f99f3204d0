"""What errors tell a caller who may not see all of a table: no values of its rows.

They name only the constraint or column.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sparkport.errors import (
    BadRequest,
    CatalogFault,
    ConstraintViolation,
    PreconditionFailed,
    SparkportError,
)

__all__ = ["discreet"]

_log = logging.getLogger(__name__)

_MAY_TELL = frozenset({BadRequest, PreconditionFailed, CatalogFault})
"""Errors that may quote a row that cannot be read; errors derived from these are not about rows."""


@contextmanager
def discreet(shows: bool, what: str, *, reading: bool = False) -> Iterator[None]:
    """Reword errors for a caller, unless the caller is shown all values of the table `what`.

    With `reading`, for rows that come from the table only, every error is told in our words. Its
    own words may come from another program, or may have lost `without_values` on the way from
    another process.
    """
    try:
        yield
    except SparkportError as error:
        said = None if shows else _words(error, what, reading)
        if said is None:
            raise
        _log.info(
            "told without values, as its caller may not see all of %s: %s", what, error.message
        )
        own = next(
            each for each in type(error).__mro__ if each.__module__ == SparkportError.__module__
        )
        raise own(said) from error


def _words(error: SparkportError, what: str, reading: bool) -> str | None:
    """The message in place of the error's own; None to keep that."""
    if error.without_values is not None:
        return error.without_values
    if isinstance(error, ConstraintViolation):
        return f"the change would break a constraint of {what}"
    if reading and type(error) in _MAY_TELL:
        return (
            f"{what} cannot be read, for a reason that may tell of what you do not see: "
            "ask its administrator"
        )
    return None
