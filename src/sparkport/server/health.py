"""gRPC's health service for load balancers: SERVING until the server begins to stop.

It needs no token: every caller that can reach the port knows that much anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc

from sparkport.errors import LimitExceeded, SparkportError
from sparkport.server.boundary import FLIGHT_SERVICE
from sparkport.server.doorstep import Doorstep
from sparkport.wire.flight import protobuf_fields

__all__ = ["Health"]

_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = 1, 2, 3
_SERVICES = ("", FLIGHT_SERVICE)
_MOST_WATCHERS = 100
"""Each takes a thread, and any caller may watch."""
_MOST_QUESTIONS, _QUESTIONS_AT_ONCE = 32, 1
"""Requests whose message the server waits for, and those that it reads."""


class Health:
    """The state of a server. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._serving = True
        self._closed = False
        self._watchers = 0
        self.doorstep = Doorstep(_MOST_QUESTIONS, _QUESTIONS_AT_ONCE)

    def handlers(self) -> grpc.GenericRpcHandler:
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch),
        }
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods)

    def stop_serving(self) -> None:
        """Answer NOT_SERVING from now on."""
        with self._changed:
            self._serving = False
            self._changed.notify_all()

    def close(self) -> None:
        """End all watches."""
        with self._changed:
            self._serving, self._closed = False, True
            self._changed.notify_all()

    def _check(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        status = self._status(self._asked(requests, context))
        if status == _SERVICE_UNKNOWN:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return _response(status)

    def _watch(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        service = self._asked(requests, context)
        gone = threading.Event()

        def leave() -> None:
            with self._changed:
                gone.set()
                self._changed.notify_all()

        with self._changed:
            full = self._watchers >= _MOST_WATCHERS
            self._watchers += not full
        if full or not context.add_callback(leave):
            if not full:
                self._stop_watching()
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many clients watch already")
        try:
            told: int | None = None
            while not gone.is_set():
                status = self._status(service)
                if status != told:
                    told = status
                    yield _response(status)
                with self._changed:
                    self._changed.wait_for(
                        lambda told=told: self._has_changed(service, told) or gone.is_set()  # type: ignore[misc]
                    )
                    if self._closed and self._status(service) == told:
                        return
        finally:
            self._stop_watching()

    def _asked(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> str:
        """Return the service that the caller asks about."""
        place = self.doorstep.enter()
        if place is None:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many clients ask already")
        try:
            request = place.first_message(requests, lambda _reason: context.cancel())
            names = [value for field, value in protobuf_fields(memoryview(request)) if field == 1]
            return bytes(names[-1]).decode() if names and not isinstance(names[-1], int) else ""
        except LimitExceeded as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
        except (SparkportError, UnicodeDecodeError):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "the request is not a HealthCheckRequest message"
            )
        finally:
            place.leave()

    def _has_changed(self, service: str, told: int | None) -> bool:
        return self._closed or self._status(service) != told

    def _stop_watching(self) -> None:
        with self._changed:
            self._watchers -= 1

    def _status(self, service: str) -> int:
        if service not in _SERVICES:
            return _SERVICE_UNKNOWN
        return _SERVING if self._serving else _NOT_SERVING


def _response(status: int) -> bytes:
    """A HealthCheckResponse: its field 1, a varint, is the status."""
    return bytes([1 << 3, status])
