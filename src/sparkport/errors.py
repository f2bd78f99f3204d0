"""The errors Sparkport raises, in one tree; this module imports nothing.

    SparkportError
    ├── BadRequest               INVALID_ARGUMENT     malformed, or asks for something impossible
    ├── NotFound                 NOT_FOUND            an object, column, function or row
    ├── AlreadyExists            ALREADY_EXISTS
    ├── PreconditionFailed       FAILED_PRECONDITION  the object is not in a state for it
    │   ├── SchemaNotEmpty
    │   ├── StaleDescriptor      the client's picture of the table is of an older schema
    │   ├── NotWritable          the table does not support this kind of change
    │   ├── TransactionNotActive
    │   └── ConstraintViolation  shown by DuckDB as "Constraint Error"
    ├── Conflict                 ABORTED              another change was first; try again
    ├── Unsupported              UNIMPLEMENTED
    ├── Unauthenticated          UNAUTHENTICATED
    ├── PermissionDenied         PERMISSION_DENIED    shown by DuckDB as "Permission Error"
    ├── LimitExceeded            RESOURCE_EXHAUSTED
    ├── Cancelled                CANCELLED            the client went away; the message is not read
    └── CatalogFault             UNKNOWN              a catalog implementation broke its contract

A message is for the person who typed the SQL: the object, the problem, the remedy. It never holds a
stack trace, a path or a secret, because it is sent as it is. Every other exception is logged and
reaches the client only as a trace id.
"""

from __future__ import annotations

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "Cancelled",
    "CatalogFault",
    "Conflict",
    "ConstraintViolation",
    "LimitExceeded",
    "NotFound",
    "NotWritable",
    "PermissionDenied",
    "PreconditionFailed",
    "SchemaNotEmpty",
    "SparkportError",
    "StaleDescriptor",
    "TransactionNotActive",
    "Unauthenticated",
    "Unsupported",
]


class SparkportError(Exception):
    """Base of all errors whose message may be shown to the person who typed the SQL.

    `code` is the name of the gRPC status code; `duckdb_exception` the DuckDB exception type the
    client should raise (airport §14.3), or None for its plain IO Error. There are three;
    "InvalidInputException" stands for everything that is neither about constraints nor about
    permissions.

    A message that shows values of a table comes with another one `without_values`, for those who
    may not see them.
    """

    code: str = "UNKNOWN"
    duckdb_exception: str | None = "InvalidInputException"

    def __init__(self, message: str, *, without_values: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.without_values = without_values

    def replace(self, old: str, new: str) -> None:
        """Put another text in the place of one in the message, such as the name that users know."""
        self.message = self.message.replace(old, new)
        self.without_values = self.without_values and self.without_values.replace(old, new)
        self.args = (self.message,)


class BadRequest(SparkportError):
    """The request is malformed, or asks for something that can never work."""

    code = "INVALID_ARGUMENT"


class NotFound(SparkportError):
    """The named catalog, schema, table, column, function or row does not exist."""

    code = "NOT_FOUND"


class AlreadyExists(SparkportError):
    """An object of that name exists already."""

    code = "ALREADY_EXISTS"


class PreconditionFailed(SparkportError):
    """The request is well-formed, but the object is not in a state that allows it."""

    code = "FAILED_PRECONDITION"


class SchemaNotEmpty(PreconditionFailed):
    """A schema that still contains tables was to be dropped."""


class StaleDescriptor(PreconditionFailed):
    """The client holds a descriptor of an older schema of the table; it must attach again."""


class NotWritable(PreconditionFailed):
    """The table does not support this kind of change."""


class TransactionNotActive(PreconditionFailed):
    """The transaction was committed, rolled back, or has expired."""


class ConstraintViolation(PreconditionFailed):
    """The change would break a constraint of the table; nothing was changed."""

    duckdb_exception = "ConstraintException"


class Conflict(SparkportError):
    """A concurrent change got there first; nothing was changed, trying again may work."""

    code = "ABORTED"
    duckdb_exception = None  # worth another try, unlike an invalid input


class Unsupported(SparkportError):
    """The server, or this catalog, cannot do that."""

    code = "UNIMPLEMENTED"


class Unauthenticated(SparkportError):
    """The request carries no valid credentials."""

    code = "UNAUTHENTICATED"
    duckdb_exception = "PermissionException"


class PermissionDenied(SparkportError):
    """The caller is known, and not allowed to do that."""

    code = "PERMISSION_DENIED"
    duckdb_exception = "PermissionException"


class LimitExceeded(SparkportError):
    """The request is larger than the server accepts."""

    code = "RESOURCE_EXHAUSTED"


class Cancelled(SparkportError):
    """The caller cancelled the request or went away."""

    code = "CANCELLED"
    duckdb_exception = None


class CatalogFault(SparkportError):
    """A catalog implementation broke its contract, for instance by yielding batches of another
    schema.

    UNKNOWN rather than INTERNAL: the client would retry an action for three seconds (airport
    §14.1).
    """
