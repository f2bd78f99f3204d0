"""The methods of Flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from sparkport.server.boundary import FLIGHT_SERVICE, Answer, Messages, Rpc, one_request
from sparkport.service.calls import Call
from sparkport.service.limits import ACTIONS
from sparkport.service.service import Service
from sparkport.wire.headers import RequestHeaders

__all__ = ["flight_methods"]


def flight_methods(service: Service) -> dict[str, Rpc]:
    """Return the methods by their paths. Messages stay bytes: the wire layer decodes them."""
    admit, authenticate, keeper = service.admit, service.authenticate, service.keeper

    def rpc(name: str, may: Callable[[Call], Call], run: Answer, **properties: Any) -> Rpc:
        return Rpc(name, may, run, keeper, **properties)

    rpcs = [
        rpc(
            "DoAction",
            authenticate,
            one_request(service.do_action),
            with_handles=True,
            answers_once=service.answers_once,
        ),
        rpc("DoGet", authenticate, one_request(service.do_get), with_handles=True),
        rpc("DoExchange", authenticate, _streaming(service.do_exchange), with_handles=True),
        rpc("DoPut", admit, _streaming(service.do_put)),
        rpc("ListFlights", admit, one_request(service.list_flights)),
        rpc("ListActions", admit, one_request(lambda call, _message: service.list_actions(call))),
        rpc("GetFlightInfo", admit, one_request(service.get_flight_info), answers_once=_always),
        rpc("GetSchema", admit, one_request(service.get_schema), answers_once=_always),
        rpc("Handshake", admit, _handshake),
    ]
    return {f"/{FLIGHT_SERVICE}/{rpc.name}": rpc for rpc in rpcs}


def _always(_headers: RequestHeaders) -> bool:
    return True


def _streaming(run: Callable[[Call, Iterator[bytes]], Messages]) -> Answer:
    return lambda call, messages, _context: run(call, messages)


def _handshake(call: Call, messages: Iterator[bytes], context: grpc.ServicerContext) -> Messages:
    """Answer drivers that ask for a token in exchange for a user name and password.

    ADBC's and pyarrow's drivers give up without a token. Where everybody is let in, they get a
    token that opens nothing, and nothing of what they sent comes back. Where tokens are required,
    the handshake needs a token like any other call.
    """
    if call.principal is None:
        context.send_initial_metadata((("authorization", "Bearer anonymous"),))
    with call.quotas.hold(ACTIONS):
        for _ in messages:
            yield b""
