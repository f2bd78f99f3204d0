"""From gRPC to the service and back: a call, and the only place where errors become statuses."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import NoReturn, TypeAlias

import grpc

from sparkport.catalog import Cancellation
from sparkport.errors import BadRequest, Cancelled, SparkportError
from sparkport.lines import one_line
from sparkport.server.doorstep import DoorstepPlace
from sparkport.server.logs import REQUEST
from sparkport.server.observability import Watching
from sparkport.service.activity import Work
from sparkport.service.calls import Call
from sparkport.service.limits import ACTIONS, LimitKeeper
from sparkport.wire.headers import RequestHeaders
from sparkport.wire.status import Status, internal_status, status_of

__all__ = [
    "FLIGHT_SERVICE",
    "STOPPING",
    "Behaviour",
    "Messages",
    "Rpc",
    "answering",
    "answering_once",
    "one_request",
    "refusing",
]

_log = logging.getLogger("sparkport.server")
FLIGHT_SERVICE = "arrow.flight.protocol.FlightService"
STOPPING = Status("UNAVAILABLE", "the server is being stopped: try again in a moment")


Messages: TypeAlias = Generator[bytes, None, None]
"""The messages that a client gets. Closing them ends the work on the call."""
Answer: TypeAlias = Callable[[Call, Iterator[bytes], grpc.ServicerContext], Messages]
"""Answers a call: from the messages that the client sends to the messages that it gets."""
Behaviour: TypeAlias = Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]
"""The function that gRPC calls for a stream of answers."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """The properties of a method that all its calls share.

    For gRPC every method has a stream of messages of the client, which looks the same on the wire.
    So the server decides when the first message is read: after it has checked the headers.
    """

    name: str
    admit: Callable[[Call], Call]
    """Refuses a caller, or adds its identity to the call."""
    run: Answer
    keeper: LimitKeeper
    """Counts what the callers use at once."""
    with_handles: bool = False
    """Whether a descriptor or ticket that was handed out to a caller can stand for its token."""
    answers_once: Callable[[RequestHeaders], bool] = lambda _headers: False
    """Whether a call with these headers has exactly one answer, unless it fails.

    gRPC then sends the answer and the status together, and no thread waits in between.
    """

    @property
    def is_action(self) -> bool:
        return self.name == "DoAction"


def one_request(run: Callable[[Call, bytes], Messages]) -> Answer:
    """Answer a method whose clients send a single message."""

    def answer(call: Call, messages: Iterator[bytes], _context: grpc.ServicerContext) -> Messages:
        with call.quotas.hold(ACTIONS):  # a call that waits for its message takes a place too
            request = next(messages, None)
        if request is None:
            raise BadRequest("the call has no message")
        return run(call, request)

    return answer


def answering(
    rpc: Rpc,
    watching: Watching,
    headers: RequestHeaders,
    place: DoorstepPlace | None,
    left: Callable[[], None],
) -> Behaviour:
    """Serve a call.

    `place` is where a call waits whose headers do not identify its caller. `left` is called at its
    end. Scans fail late, so errors are mapped around the iteration, not around the call.
    """

    def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        call, finish = _begin(context, rpc, watching, headers)
        work = call.work
        try:
            call = _admitted(call, rpc, watching)
            messages = _received(requests, context, work)
            if place is not None:
                messages = chain([place.first_message(messages, work.cut)], messages)
            with closing(rpc.run(call, messages, context)) as answers:
                for message in answers:
                    work.note_sending(message)
                    yield message
                    work.stop_waiting()
            work.code = "OK"
        except GeneratorExit:  # gRPC has dropped the call
            raise
        except BaseException as error:  # noqa: BLE001 - uncaught, it would hang the client
            _abort(context, call, error, action=rpc.is_action)
        finally:
            if place is not None:
                place.leave()
            left()
            finish()

    return handle


def answering_once(
    behaviour: Behaviour,
) -> Callable[[Iterator[bytes], grpc.ServicerContext], bytes]:
    """Serve a call that has exactly one answer."""

    def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        (answer,) = behaviour(requests, context)
        return answer

    return handle


def refusing(
    rpc: Rpc, watching: Watching, headers: RequestHeaders, error: SparkportError
) -> Behaviour:
    """Refuse a call without reading any of its messages."""

    def handle(_requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        call, finish = _begin(context, rpc, watching, headers)
        try:
            _abort(context, call, error, action=rpc.is_action)
        finally:
            finish()

    return handle


def _admitted(call: Call, rpc: Rpc, watching: Watching) -> Call:
    """Admit the caller. Raises: _Stopping; what `admit` raises."""
    if watching.refuses(call.work):
        raise _Stopping
    call = rpc.admit(call)
    call.work.principal = call.principal
    return call


class _Stopping(Exception):
    """The server is stopping and takes no new calls."""


def _received(
    messages: Iterator[bytes], context: grpc.ServicerContext, work: Work
) -> Iterator[bytes]:
    """Yield the messages of a client's stream; a stream that breaks off is not taken for its end.

    Raises: Cancelled when the client has gone away.
    """
    try:
        work.start_waiting()
        for message in messages:
            work.note_received(message)
            yield message
            work.start_waiting()
        # gRPC notes the end of the messages first, and then that the call was cancelled. In between
        # the stream looks closed. Asking again goes through the same queue, so that gRPC has noted
        # both by the time it answers.
        next(messages, None)
    except grpc.RpcError as error:
        raise Cancelled("the client went away") from error
    finally:
        work.stop_waiting()
    if not context.is_active():
        raise Cancelled("the client went away")


def _begin(
    context: grpc.ServicerContext, rpc: Rpc, watching: Watching, headers: RequestHeaders
) -> tuple[Call, Callable[[], None]]:
    """Return the call, and the function to call when it has ended by itself."""
    cancellation = Cancellation()
    ended = False
    trace_id = headers.trace_id or secrets.token_hex(16)
    work = Work(
        rpc.name,
        trace_id=trace_id,
        session=headers.session_id or "",
        operation=headers.operation or "",
        cancellation=cancellation,
        abandon=context.cancel,
    )
    watching.begin(work)
    REQUEST.set(work)

    def finish() -> None:
        nonlocal ended
        ended = True
        watching.end(work)

    def terminated() -> None:  # gRPC calls it at every end; only an early end is a cancellation
        if not ended:
            cancellation.cancel()

    if not context.add_callback(terminated):
        cancellation.cancel()
    call = Call(
        headers, cancellation, trace_id, abandon=context.cancel, work=work, keeper=rpc.keeper
    )
    return call, finish


def _log_unexpected(trace_id: str, error: BaseException) -> None:
    """Log an unforeseen error. If logging fails, that must not reach the client either."""
    try:
        _log.error("trace %s: unexpected error", trace_id, exc_info=error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed, or a broken handler
        _log.error(
            "trace %s: unexpected error %s, which cannot be shown", trace_id, type(error).__name__
        )


def _abort(
    context: grpc.ServicerContext, call: Call, error: BaseException, *, action: bool
) -> NoReturn:
    if isinstance(error, SparkportError):
        headers = call.headers
        plain = action or not headers.from_grpc_core
        status = status_of(error, from_duckdb=headers.from_duckdb, plain=plain)
        if not isinstance(error, Cancelled):
            # A program that uses Sparkport may have a log format of its own.
            line = one_line(status.message)
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
