"""Who is let in, before anything of what they send is read and before a thread is theirs.

gRPC asks here in the one thread in which it hears of calls, so nothing may take long. Headers with
a token are let pass, and judged in a thread of the call's own. Without one, headers must show what
was handed out to a caller who had one; else the call has to wait on the doorstep, where there is
little room, or is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

from sparkport.errors import LimitExceeded, SparkportError, Unauthenticated
from sparkport.server.boundary import Rpc, answering, refusing
from sparkport.server.doorstep import Doorstep, Place
from sparkport.server.observability import Watching
from sparkport.service.calls import HOW_TO_SIGN_IN
from sparkport.service.service import Service
from sparkport.wire.headers import RequestHeaders, decode_headers

__all__ = ["Door"]

_T = TypeVar("_T")
_MOST_STRANGERS, _STRANGERS_AT_ONCE = 64, 2
"""Who wait on the doorstep, and whose first message is received: each may take as much memory as
any message.
"""
_LONGEST_LINE = 1000


class Door(grpc.GenericRpcHandler):
    """Lets in so many calls at once. Thread-safe."""

    def __init__(
        self, service: Service, watching: Watching, rpcs: Mapping[str, Rpc], most_calls: int
    ) -> None:
        self._service = service
        self._watching = watching
        self._rpcs = rpcs
        self._most_calls = most_calls
        self._lock = threading.Lock()
        self._under_way = 0
        self._doorkeeper = _Doorkeeper()
        self.doorstep = Doorstep(max(1, min(_MOST_STRANGERS, most_calls // 4)), _STRANGERS_AT_ONCE)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        rpc = self._rpcs.get(handler_call_details.method)
        if rpc is None:
            return None
        try:
            place = self._place(rpc, decode_headers(handler_call_details.invocation_metadata))
        except SparkportError as error:
            refusal: Any = refusing(rpc, self._watching, error)
            refusal.experimental_thread_pool = self._doorkeeper  # an attribute that gRPC looks for
            return grpc.stream_stream_rpc_method_handler(refusal)
        return grpc.stream_stream_rpc_method_handler(
            answering(rpc, self._watching, place, self._left)
        )

    def close(self) -> None:
        """End its thread, when nobody calls any more."""
        self._doorkeeper.shutdown()

    def _place(self, rpc: Rpc, headers: RequestHeaders) -> Place | None:
        """Where a call waits that does not say who makes it; None for others. Raises:
        Unauthenticated, LimitExceeded.
        """
        place = None
        if not self._service.is_told(headers):
            if not rpc.with_handles or not self._service.may_tell_later(headers):
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
            f"{self._most_calls} calls are under way, and more are not allowed at once (max_calls): try again in a moment"
        )

    def _left(self) -> None:
        with self._lock:
            self._under_way -= 1


class _Doorkeeper(ThreadPoolExecutor):
    """Tells callers that they are refused, one after the other, so that they take no threads from
    others.

    When too many stand in line, those who follow are told by whoever brings them, who is thereby
    slowed down.
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
