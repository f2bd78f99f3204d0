"""From gRPC to the service and back: the methods, and the one place where errors become statuses."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, NoReturn, TypeAlias

import grpc

from sparkport.catalog import Cancellation
from sparkport.errors import Cancelled, SparkportError
from sparkport.service.calls import Call
from sparkport.service.service import Service
from sparkport.wire.headers import decode_headers
from sparkport.wire.status import Status, internal_status, status_of

__all__ = ["flight_handlers"]

_log = logging.getLogger("sparkport.server")
_SERVICE = "arrow.flight.protocol.FlightService"


def flight_handlers(service: Service) -> grpc.GenericRpcHandler:
    """Messages are left as bytes: the wire layer reads and writes them itself."""
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    both = grpc.stream_stream_rpc_method_handler
    admit = service.admit
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "DoAction": stream(_streaming(admit, service.do_action, action=True)),
        "DoGet": stream(_streaming(admit, service.do_get)),
        "DoExchange": both(_streaming(admit, service.do_exchange)),
        "DoPut": both(_streaming(admit, service.do_put)),
        "ListFlights": stream(_streaming(admit, service.list_flights)),
        "ListActions": stream(_streaming(admit, lambda call, _message: service.list_actions(call))),
        "GetFlightInfo": unary(_unary(admit, service.get_flight_info)),
        "GetSchema": unary(_unary(admit, service.get_schema)),
        "Handshake": both(_handshake(admit)),
    }
    return grpc.method_handlers_generic_handler(_SERVICE, methods)


_Admit: TypeAlias = Callable[[Call], Call]
"""Refuses a caller, or says who it is."""


def _streaming(
    admit: _Admit, run: Callable[[Call, Any], Iterator[bytes]], *, action: bool = False
) -> Callable[[Any, grpc.ServicerContext], Iterator[bytes]]:
    """Scans fail late, so errors are mapped around the iteration, not around the call."""

    def handle(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        call, finish = _begin(context)
        if not isinstance(request, bytes):
            request = _received(request, context)
        try:
            with closing(_iterate(run, admit(call), request)) as messages:
                yield from messages
        except GeneratorExit:  # gRPC has let go of the call
            raise
        except BaseException as error:  # noqa: BLE001 - the one boundary; what gRPC does not catch hangs the client
            _abort(context, call, error, action=action)
        finally:
            finish()

    return handle


def _unary(admit: _Admit, run: Callable[[Call, bytes], bytes]) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
        call, finish = _begin(context)
        try:
            return run(admit(call), request)
        except BaseException as error:  # noqa: BLE001 - the one boundary; what gRPC does not catch hangs the client
            _abort(context, call, error, action=False)
        finally:
            finish()

    return handle


def _handshake(admit: _Admit) -> Callable[[Any, grpc.ServicerContext], Iterator[bytes]]:
    """Drivers that were given a user name and a password (ADBC's, pyarrow's) ask here for a token and give up without one.

    Where everybody is let in they get one that opens nothing, and nothing of what they sent comes back. Where tokens are
    asked for, the handshake needs one like any other call.
    """

    def handle(requests: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        def answer(call: Call, messages: Iterator[bytes]) -> Iterator[bytes]:
            if call.principal is None:
                context.send_initial_metadata((("authorization", "Bearer anonymous"),))
            for _ in messages:
                yield b""

        yield from _streaming(admit, answer)(requests, context)

    return handle


def _iterate(run: Callable[[Call, Any], Iterator[bytes]], call: Call, request: Any) -> Generator[bytes, None, None]:
    """A generator around `run`, so that there is always something to close."""
    yield from run(call, request)


def _received(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    """The messages of a client's stream. One that breaks off must not look like one that has been closed.

    Raises: Cancelled when the client has gone away.
    """
    try:
        yield from messages
        # gRPC notes the end of the messages first and that the call was cancelled second; in between the stream looks
        # closed. Asking again goes through the same queue, so that by the answer it has noted both.
        next(messages, None)
    except grpc.RpcError as error:
        raise Cancelled("the client went away") from error
    if not context.is_active():
        raise Cancelled("the client went away")


def _begin(context: grpc.ServicerContext) -> tuple[Call, Callable[[], None]]:
    """The call, and what to do when it has ended by itself."""
    headers = decode_headers(context.invocation_metadata())
    cancellation = Cancellation()
    ended = False

    def finish() -> None:
        nonlocal ended
        ended = True

    def terminated() -> None:  # gRPC calls it at every end; only an early one is a cancellation
        if not ended:
            cancellation.cancel()

    if not context.add_callback(terminated):
        cancellation.cancel()
    return Call(headers, cancellation, headers.trace_id or str(uuid.uuid4()), abandon=context.cancel), finish


def _abort(context: grpc.ServicerContext, call: Call, error: BaseException, *, action: bool) -> NoReturn:
    if isinstance(error, SparkportError):
        status = status_of(error, from_duckdb=call.headers.from_duckdb, action=action)
        if not isinstance(error, Cancelled):
            line = status.message.replace("\n", " ")  # a name from a client must not look like an entry of its own
            _log.info("trace %s: %s: %s", call.trace_id, status.code, line)
    elif call.cancellation.cancelled:
        status = Status("CANCELLED", "the request was cancelled")
    else:
        _log.error("trace %s: unexpected error", call.trace_id, exc_info=error)
        status = internal_status(call.trace_id, retried=action and call.headers.from_duckdb)
    context.set_trailing_metadata(status.trailers)
    context.abort(grpc.StatusCode[status.code], status.message)
