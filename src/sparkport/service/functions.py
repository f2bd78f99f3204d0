"""Functions as clients see them: their published signatures, and finding them by a descriptor."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import (
    Arguments,
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    ScalarFunction,
    Schema,
    TableFunction,
    TableInOutFunction,
)
from sparkport.catalog.names import folded
from sparkport.engine.argument_types import canonical_schema, python_value, sent_type
from sparkport.engine.encodings import convert_array
from sparkport.engine.signatures import FunctionForm, form_of, refuse_unusable
from sparkport.engine.types import publishable_schema
from sparkport.errors import BadRequest, NotFound, StaleDescriptor
from sparkport.service.calls import Call
from sparkport.service.function_guard import WatchedGuard
from sparkport.service.objects import find_schema, published_name
from sparkport.service.registry import RegisteredCatalog
from sparkport.wire.catalogs import ObjectKind, encode_object_metadata
from sparkport.wire.descriptors import ObjectPath, decode_path, encode_path
from sparkport.wire.flight import encode_flight_info
from sparkport.wire.ipc import ONE_ROW
from sparkport.wire.signing import Signer

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = [
    "Function",
    "PublishedFunction",
    "arguments_of",
    "bind_function",
    "convert_arguments",
    "find_function",
    "function_info",
    "functions_named",
    "guarded",
    "publish_function",
]

Function: TypeAlias = ScalarFunction | TableFunction | TableInOutFunction

RESULT = "result"
"""The column of a scalar function's result: fixed, because the client compares it (airport §15.3).
"""
MOST_VARIADIC = 8
"""How many values of a variadic parameter DuckDB is offered, each number as an overload."""


@dataclass(frozen=True, slots=True)
class PublishedFunction:
    """One overload of a function."""

    registered: RegisteredCatalog
    schema_name: str
    function: Function
    parameters: tuple[Parameter, ...]
    """The signature's parameters, with a variadic one repeated as often as this overload takes it.
    """
    input_schema: pa.Schema
    arrow_schema: pa.Schema
    """A scalar function's result; empty for other functions."""
    fingerprint: str

    @property
    def kind(self) -> ObjectKind:
        return "scalar_function" if isinstance(self.function, ScalarFunction) else "table_function"

    @property
    def title(self) -> str:
        """The function's name in messages."""
        return f"function {self.schema_name}.{self.function.name}"

    @property
    def values(self) -> tuple[Parameter, ...]:
        """The parameters that are passed as values, not as a subquery."""
        return tuple(each for each in self.parameters if each.kind is not ParameterKind.TABLE)

    def descriptor(self, ctx: Context, signer: Signer) -> flight.FlightDescriptor:
        """The signed handle under which a client knows this overload (airport §3.7)."""
        path = ObjectPath(
            self.registered.name,
            self.schema_name,
            self.kind,
            self.function.name,
            self.fingerprint,
            attached_as=ctx.catalog_name,
            bearer=ctx.identity,
        )
        return encode_path(path, signer)


def publish_function(
    registered: RegisteredCatalog, schema_name: str, function: Function, values: int | None = None
) -> list[PublishedFunction]:
    """The overloads of a function: several if it is variadic and `values` is not given."""
    signature, form = function.signature, form_of(function)
    repetitions: Iterable[tuple[Parameter, ...]] = (signature.parameters,)
    if signature.variadic:
        refuse_unusable(signature, form)
        fixed = len(signature.parameters) - 1
        counts = range(1, MOST_VARIADIC + 1) if values is None else (max(1, values - fixed),)
        repetitions = (_repeated(signature, count) for count in counts)
    return [
        PublishedFunction(
            registered, schema_name, function, each, *_shape(each, signature.return_type, form)
        )
        for each in repetitions
    ]


def function_info(ctx: Context, published: PublishedFunction, signer: Signer) -> bytes:
    """A function's FlightInfo (airport §3.5)."""
    function = published.function
    metadata = encode_object_metadata(
        published.kind,
        ctx.catalog_name,
        published_name(published.schema_name),
        function.name,
        function.comment,
        published.input_schema,
        function.comment,
        function.stability if isinstance(function, ScalarFunction) else None,
    )
    return encode_flight_info(
        published.arrow_schema, published.descriptor(ctx, signer), app_metadata=metadata
    )


def bind_function(
    service: Service, call: Call, descriptor: flight.FlightDescriptor, kind: ObjectKind
) -> tuple[Context, PublishedFunction]:
    """Find the overload that a descriptor names. Raises: NotFound, BadRequest, StaleDescriptor."""
    with service.authentication_first(call):
        path = decode_path(descriptor, service.signer)
    call.work.note_object(path.catalog, path.schema, path.name)
    if path.kind != kind:
        raise NotFound(f"{path.schema}.{path.name} is not a {kind.replace('_', ' ')}")
    call = service.identified(call, path.bearer)
    service.handed_out(call, path.catalog or "")
    ctx, registered = service.enter(call, path.catalog, path.attached_as)
    return ctx, find_function(ctx, registered, path.schema, kind, path.name, path.fingerprint)


def guarded(
    service: Service, call: Call, ctx: Context, published: PublishedFunction
) -> WatchedGuard:
    """The guard of the function while it runs."""
    function = published.function
    return service.watch.guard(
        ctx, published.title, function.time_limit, function.interruptible, call.abandon
    )


def find_function(
    ctx: Context,
    registered: RegisteredCatalog,
    schema_name: str,
    kind: ObjectKind,
    name: str,
    fingerprint: str,
    values: int | None = None,
) -> PublishedFunction:
    """Find an overload.

    Raises: NotFound; StaleDescriptor when the function of that name has other parameters.
    """
    known = False
    for published in functions_named(ctx, registered, schema_name, kind, name, values):
        if published.fingerprint == fingerprint:
            return published
        known = True
    if known:
        raise StaleDescriptor(
            f"function {schema_name}.{name} has been changed since it was attached: DETACH the "
            f"catalog and ATTACH it again"
        )
    raise NotFound(f"function {schema_name}.{name} not found")


def functions_named(
    ctx: Context,
    registered: RegisteredCatalog,
    schema_name: str,
    kind: ObjectKind,
    name: str,
    values: int | None = None,
) -> Iterator[PublishedFunction]:
    """Yield the overloads of that name; of a variadic function those for so many values.

    Raises: NotFound when the schema does not exist.
    """
    schema = find_schema(ctx, registered, schema_name)
    functions: Sequence[Function] = (
        schema.scalar_functions(ctx) if kind == "scalar_function" else schema.table_functions(ctx)
    )
    for function in functions:
        if folded(function.name) == folded(name) and may_call(ctx, schema, function):
            yield from publish_function(registered, schema.name, function, values)


def may_call(ctx: Context, schema: Schema, function: Function) -> bool:
    """Whether the caller may use the function; if not, it is hidden from the caller."""
    return ctx.access.may(function.privilege, schema.name, function.name)


# --------------------------------------------------------------------------------------- arguments


def convert_arguments(
    published: PublishedFunction, row: pa.RecordBatch, *, from_duckdb: bool
) -> Arguments:
    """Convert the row that the client sent to the arguments of a table function, by their types.

    Raises: BadRequest.
    """
    parameters = published.values
    if row.num_columns != len(parameters):
        raise BadRequest(
            f"{published.title} takes {len(parameters)} arguments, not {row.num_columns}"
        )
    sent = canonical_schema(row.schema)
    arrays = [
        convert_array(
            row.column(index),
            sent.field(index).type if parameter.type is None else parameter.type,
            parameter.name,
            from_duckdb=from_duckdb,
        )
        for index, parameter in enumerate(parameters)
    ]
    return _arguments(parameters, arrays, row.schema)


def arguments_of(published: PublishedFunction, values: Sequence[Any]) -> Arguments:
    """Make arguments from plain values, as the contracts' requests bring them.

    Named arguments may be left out at the end. Raises: BadRequest.
    """
    parameters = published.values
    least = sum(each.kind is not ParameterKind.NAMED for each in parameters)
    if not least <= len(values) <= len(parameters):
        raise BadRequest(f"{published.title} takes {least} arguments, not {len(values)}")
    given = [*values, *[None] * (len(parameters) - len(values))]
    return _arguments(
        parameters, [_array(published, *each) for each in zip(parameters, given, strict=True)]
    )


def _array(published: PublishedFunction, parameter: Parameter, value: Any) -> pa.Array:
    target = parameter.type
    try:
        array = pa.array(
            [value], pa.uint64() if isinstance(value, int) and value >= 1 << 63 else None
        )
        if target is not None and pa.types.is_floating(array.type) and pa.types.is_floating(target):
            return array.cast(target)  # to the nearest, as DuckDB does
        return (
            array
            if target is None
            else convert_array(array, target, parameter.name, from_duckdb=False)
        )
    except (pa.ArrowException, ValueError, TypeError, OverflowError, BadRequest):
        expected = "a value" if target is None else str(target)
        raise BadRequest(
            f"{published.title}: parameter {parameter.name} must be {expected}, not "
            f"{type(value).__name__}"
        ) from None


def _arguments(
    parameters: Sequence[Parameter], arrays: Sequence[pa.Array], sent: pa.Schema | None = None
) -> Arguments:
    """Make arguments. `sent` has what only metadata tells, such as that bytes are a GEOMETRY."""
    fields = pa.schema(
        [
            pa.field(
                each.name, array.type, metadata=None if sent is None else sent.field(index).metadata
            )
            for index, (each, array) in enumerate(zip(parameters, arrays, strict=True))
        ]
    )
    # A batch without columns would have no row.
    row = pa.RecordBatch.from_arrays(list(arrays), schema=fields) if arrays else ONE_ROW
    return Arguments((python_value(array[0]) for array in arrays), row)


# -------------------------------------------------------------------------------------- publishing


def _repeated(signature: FunctionSignature, count: int) -> tuple[Parameter, ...]:
    *first, last = signature.parameters
    more = (Parameter(f"{last.name}_{number}", last.type) for number in range(2, count + 1))
    return (*first, last, *more)


@lru_cache(maxsize=4096)
def _shape(
    parameters: tuple[Parameter, ...], return_type: pa.DataType | None, form: FunctionForm
) -> tuple[pa.Schema, pa.Schema, str]:
    """The published input schema, the result, and a fingerprint of both.

    Raises: BadRequest, Unsupported.
    """
    refuse_unusable(FunctionSignature(parameters, return_type), form)
    input_schema = pa.schema([_field(parameter, form) for parameter in parameters])
    result = publishable_schema(
        pa.schema([pa.field(RESULT, return_type)] if form == "scalar" else [])
    )
    content = b"".join(
        (form.encode(), input_schema.serialize().to_pybytes(), result.serialize().to_pybytes())
    )
    return input_schema, result, hashlib.sha256(content).hexdigest()[:16]


def _field(parameter: Parameter, form: FunctionForm) -> pa.Field:
    if parameter.kind is ParameterKind.TABLE:
        return pa.field(parameter.name, pa.null(), metadata={"is_table_type": "1"})
    published = None
    if parameter.type is not None:
        declared = pa.schema([pa.field(parameter.name, parameter.type)])
        # Only scalar functions' arguments are labelled with the declared type (airport §4.7, §9.1).
        published = (
            sent_type(parameter.type)
            if form == "scalar"
            else publishable_schema(declared).field(0).type
        )
    if published is None:
        return pa.field(parameter.name, pa.null(), metadata={"is_any_type": "1"})
    named = parameter.kind is ParameterKind.NAMED
    return pa.field(
        parameter.name, published, metadata={"is_named_parameter": "1"} if named else None
    )
