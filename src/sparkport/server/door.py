"""Which calls are let in, before any of their messages is read and before they take a thread.

gRPC calls this code in its only thread for new calls, so nothing may take long. Headers with a
token pass here, and are checked in the call's own thread. Headers without a token must show a
descriptor or ticket that was handed out to an authenticated caller. Any other call waits on the
doorstep, where there is little room, or is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

from sparkport.errors import LimitExceeded, SparkportError, Unauthenticated
from sparkport.server.boundary import Rpc, answering, answering_once, refusing
from sparkport.server.doorstep import Doorstep, DoorstepPlace
from sparkport.server.observability import Watching
from sparkport.service.calls import HOW_TO_SIGN_IN
from sparkport.service.service import Service
from sparkport.wire.headers import RequestHeaders, decode_headers

__all__ = ["Door"]

_T = TypeVar("_T")
_MOST_STRANGERS, _STRANGERS_AT_ONCE = 64, 2
"""Calls that wait on the doorstep, and those whose first message is received.

Each may take as much memory as any message.
"""
_LONGEST_LINE = 1000


class Door(grpc.GenericRpcHandler):
    """Lets in a limited number of calls at once. Thread-safe."""

    def __init__(
        self, service: Service, watching: Watching, rpcs: Mapping[str, Rpc], most_calls: int
    ) -> None:
        self._service = service
        self._watching = watching
        self._rpcs = rpcs
        self._most_calls = most_calls
        self._lock = threading.Lock()
        self._under_way = 0
        self._refusing_thread = _RefusingThread()
        self.doorstep = Doorstep(max(1, min(_MOST_STRANGERS, most_calls // 4)), _STRANGERS_AT_ONCE)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        rpc = self._rpcs.get(handler_call_details.method)
        if rpc is None:
            return None
        headers = decode_headers(handler_call_details.invocation_metadata)
        try:
            place = self._place(rpc, headers)
        except SparkportError as error:
            refusal: Any = refusing(rpc, self._watching, headers, error)
            # gRPC looks for this attribute.
            refusal.experimental_thread_pool = self._refusing_thread
            return grpc.stream_stream_rpc_method_handler(refusal)
        behaviour = answering(rpc, self._watching, headers, place, self._call_ended)
        if rpc.answers_once(headers):
            return grpc.stream_unary_rpc_method_handler(answering_once(behaviour))
        return grpc.stream_stream_rpc_method_handler(behaviour)

    def close(self) -> None:
        """End the thread that refuses calls, after the last call."""
        self._refusing_thread.shutdown()

    def _place(self, rpc: Rpc, headers: RequestHeaders) -> DoorstepPlace | None:
        """Return the place on the doorstep of a call without an identity; None for other calls.

        Raises: Unauthenticated, LimitExceeded.
        """
        place = None
        if not self._service.says_who_calls(headers):
            if not rpc.with_handles or not self._service.may_identify_later(headers):
                raise Unauthenticated(HOW_TO_SIGN_IN)
            place = self.doorstep.enter()
            if place is None:
                raise LimitExceeded(
                    "too many callers have not said who they are: send the token with every call"
                )
        with self._lock:
            if self._under_way < self._most_calls:
                self._under_way += 1
                return place
        if place is not None:
            place.leave()
        raise LimitExceeded(
            f"{self._most_calls} calls are under way, and more are not allowed at once "
            "(max_calls): try again in a moment"
        )

    def _call_ended(self) -> None:
        with self._lock:
            self._under_way -= 1


class _RefusingThread(ThreadPoolExecutor):
    """Refuses calls in a single thread, so that they take no threads from others.

    When too many calls wait to be refused, the thread that submits the next refuses it itself,
    which slows new calls down.
    """

    def __init__(self) -> None:
        super().__init__(1, "doorkeeper (sparkport)")
        self._line = threading.Semaphore(_LONGEST_LINE)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        if self._line.acquire(blocking=False):
            refused = super().submit(fn, *args, **kwargs)
            refused.add_done_callback(lambda _refused: self._line.release())
            return refused
        told: Future[_T] = Future()
        told.set_result(fn(*args, **kwargs))
        return told
