"""What errors tell a caller who may not see all of a table: which constraint or column it is about,
and no value.
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
"""What may be said of a row that cannot be read; the errors derived from these are not about
rows.
"""


@contextmanager
def discreet(shows: bool, what: str, *, reading: bool = False) -> Iterator[None]:
    """Raise errors in the words for a caller who is shown the values of a table or not; `what`
    names the table.

    `reading` is for rows that come from the table only: what went wrong with them is told in no
    words but ours, because it may be somebody else's words, or have lost on the way from another
    process what it says `without_values`.
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
    """What is said instead; None for the same."""
    if error.without_values is not None:
        return error.without_values
    if isinstance(error, ConstraintViolation):
        return f"the change would break a constraint of {what}"
    if reading and type(error) in _MAY_TELL:
        return f"{what} cannot be read, for a reason that may tell of what you do not see: ask its administrator"
    return None
