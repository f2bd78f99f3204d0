"""The methods of Flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc

from sparkport.server.boundary import FLIGHT_SERVICE, Answer, Rpc, one_request
from sparkport.service.calls import Call
from sparkport.service.limits import ACTIONS
from sparkport.service.service import Service

__all__ = ["flight_methods"]


def flight_methods(service: Service) -> dict[str, Rpc]:
    """Return the methods by their paths. Messages stay bytes: the wire layer decodes them."""
    admit, authenticate = service.admit, service.authenticate
    rpcs = [
        Rpc("DoAction", authenticate, one_request(service.do_action), with_handles=True),
        Rpc("DoGet", authenticate, one_request(service.do_get), with_handles=True),
        Rpc("DoExchange", authenticate, _streaming(service.do_exchange), with_handles=True),
        Rpc("DoPut", admit, _streaming(service.do_put)),
        Rpc("ListFlights", admit, one_request(service.list_flights)),
        Rpc("ListActions", admit, one_request(lambda call, _message: service.list_actions(call))),
        Rpc("GetFlightInfo", admit, one_request(service.get_flight_info)),
        Rpc("GetSchema", admit, one_request(service.get_schema)),
        Rpc("Handshake", admit, _handshake),
    ]
    return {f"/{FLIGHT_SERVICE}/{rpc.name}": rpc for rpc in rpcs}


def _streaming(run: Callable[[Call, Iterator[bytes]], Iterator[bytes]]) -> Answer:
    return lambda call, messages, _context: run(call, messages)


def _handshake(
    call: Call, messages: Iterator[bytes], context: grpc.ServicerContext
) -> Iterator[bytes]:
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
