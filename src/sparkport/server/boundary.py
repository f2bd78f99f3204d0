"""From gRPC to the service and back: the methods, and the one place where errors become statuses."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc

from sparkport.catalog import Cancellation
from sparkport.errors import Cancelled, SparkportError
from sparkport.lines import one_line
from sparkport.server.logs import REQUEST
from sparkport.server.watching import Watching
from sparkport.service.activity import Work
from sparkport.service.calls import Call
from sparkport.service.service import Service
from sparkport.wire.headers import decode_headers
from sparkport.wire.status import Status, internal_status, status_of

__all__ = ["FLIGHT_SERVICE", "STOPPING", "flight_handlers"]

_log = logging.getLogger("sparkport.server")
FLIGHT_SERVICE = "arrow.flight.protocol.FlightService"
STOPPING = Status("UNAVAILABLE", "the server is being stopped: try again in a moment")


def flight_handlers(service: Service, watching: Watching) -> grpc.GenericRpcHandler:
    """Messages are left as bytes: the wire layer reads and writes them itself."""
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    both = grpc.stream_stream_rpc_method_handler
    admit, meet = service.admit, service.meet

    def streaming(rpc: str, admit: _Admit, run: Callable[[Call, Any], Iterator[bytes]]) -> Any:
        return _streaming(_Rpc(rpc, admit, watching), run)

    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "DoAction": stream(streaming("DoAction", meet, service.do_action)),
        "DoGet": stream(streaming("DoGet", meet, service.do_get)),
        "DoExchange": both(streaming("DoExchange", meet, service.do_exchange)),
        "DoPut": both(streaming("DoPut", admit, service.do_put)),
        "ListFlights": stream(streaming("ListFlights", admit, service.list_flights)),
        "ListActions": stream(streaming("ListActions", admit, lambda call, _message: service.list_actions(call))),
        "GetFlightInfo": unary(_unary(_Rpc("GetFlightInfo", admit, watching), service.get_flight_info)),
        "GetSchema": unary(_unary(_Rpc("GetSchema", admit, watching), service.get_schema)),
        "Handshake": both(_handshake(_Rpc("Handshake", admit, watching))),
    }
    return grpc.method_handlers_generic_handler(FLIGHT_SERVICE, methods)


_Admit: TypeAlias = Callable[[Call], Call]
"""Refuses a caller, or says who it is."""


@dataclass(frozen=True, slots=True)
class _Rpc:
    """What all calls of a method have in common."""

    name: str
    admit: _Admit
    watching: Watching

    @property
    def is_action(self) -> bool:
        return self.name == "DoAction"


def _streaming(
    rpc: _Rpc, run: Callable[[Call, Any], Iterator[bytes]]
) -> Callable[[Any, grpc.ServicerContext], Iterator[bytes]]:
    """Scans fail late, so errors are mapped around the iteration, not around the call."""

    def handle(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        call, finish = _begin(context, rpc)
        work = call.work
        if isinstance(request, bytes):
            work.bytes_in = len(request)
        else:
            request = _received(request, context, work)
        try:
            with closing(_iterate(run, _admitted(call, rpc), request)) as messages:
                for message in messages:
                    work.gives(message)
                    yield message
                    work.goes_on()
            work.code = "OK"
        except GeneratorExit:  # gRPC has let go of the call
            raise
        except BaseException as error:  # noqa: BLE001 - the one boundary; what gRPC does not catch hangs the client
            _abort(context, call, error, action=rpc.is_action)
        finally:
            finish()

    return handle


def _unary(rpc: _Rpc, run: Callable[[Call, bytes], bytes]) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
        call, finish = _begin(context, rpc)
        call.work.bytes_in = len(request)
        try:
            answer = run(_admitted(call, rpc), request)
            call.work.gives(answer)
            call.work.code = "OK"
            return answer
        except BaseException as error:  # noqa: BLE001 - the one boundary; what gRPC does not catch hangs the client
            _abort(context, call, error, action=False)
        finally:
            finish()

    return handle


def _admitted(call: Call, rpc: _Rpc) -> Call:
    """Raises: _Stopping; what `admit` raises."""
    if rpc.watching.refuses(call.work):
        raise _Stopping
    call = rpc.admit(call)
    call.work.principal = call.principal
    return call


class _Stopping(Exception):
    """The server takes no new calls."""


def _handshake(rpc: _Rpc) -> Callable[[Any, grpc.ServicerContext], Iterator[bytes]]:
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

        yield from _streaming(rpc, answer)(requests, context)

    return handle


def _iterate(run: Callable[[Call, Any], Iterator[bytes]], call: Call, request: Any) -> Generator[bytes, None, None]:
    """A generator around `run`, so that there is always something to close."""
    yield from run(call, request)


def _received(messages: Iterator[bytes], context: grpc.ServicerContext, work: Work) -> Iterator[bytes]:
    """The messages of a client's stream. One that breaks off must not look like one that has been closed.

    Raises: Cancelled when the client has gone away.
    """
    try:
        work.waits()
        for message in messages:
            work.got(message)
            yield message
            work.waits()
        # gRPC notes the end of the messages first and that the call was cancelled second; in between the stream looks
        # closed. Asking again goes through the same queue, so that by the answer it has noted both.
        next(messages, None)
    except grpc.RpcError as error:
        raise Cancelled("the client went away") from error
    finally:
        work.goes_on()
    if not context.is_active():
        raise Cancelled("the client went away")


def _begin(context: grpc.ServicerContext, rpc: _Rpc) -> tuple[Call, Callable[[], None]]:
    """The call, and what to do when it has ended by itself."""
    headers = decode_headers(context.invocation_metadata())
    cancellation = Cancellation()
    ended = False
    trace_id = headers.trace_id or str(uuid.uuid4())
    work = Work(
        rpc.name,
        trace_id=trace_id,
        session=headers.session_id or "",
        operation=headers.operation or "",
        cancellation=cancellation,
        abandon=context.cancel,
    )
    rpc.watching.begin(work)
    REQUEST.set(work)

    def finish() -> None:
        nonlocal ended
        ended = True
        rpc.watching.end(work)

    def terminated() -> None:  # gRPC calls it at every end; only an early one is a cancellation
        if not ended:
            cancellation.cancel()

    if not context.add_callback(terminated):
        cancellation.cancel()
    return Call(headers, cancellation, trace_id, abandon=context.cancel, work=work), finish


def _log_unexpected(trace_id: str, error: BaseException) -> None:
    """What goes wrong in here must not reach the client instead: it may say what the error says."""
    try:
        _log.error("trace %s: unexpected error", trace_id, exc_info=error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed, or somebody's handler
        _log.error("trace %s: unexpected error %s, which cannot be shown", trace_id, type(error).__name__)


def _abort(context: grpc.ServicerContext, call: Call, error: BaseException, *, action: bool) -> NoReturn:
    if isinstance(error, SparkportError):
        status = status_of(error, from_duckdb=call.headers.from_duckdb, action=action)
        if not isinstance(error, Cancelled):
            line = one_line(status.message)  # also for the log of a program that has a format of its own
            _log.info("trace %s: %s: %s", call.trace_id, status.code, line)
    elif isinstance(error, _Stopping):
        status = STOPPING
    elif call.cancellation.cancelled:
        status = Status("CANCELLED", "the request was cancelled")
    else:
        _log_unexpected(call.trace_id, error)
        status = internal_status(call.trace_id, retried=action and call.headers.from_duckdb)
    call.work.code, call.work.message = status.code, status.message
    context.set_trailing_metadata(status.trailers)
    context.abort(grpc.StatusCode[status.code], status.message)
