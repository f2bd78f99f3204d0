"""gRPC's reflection: tools such as grpcurl learn from it which services there are, and how to call
them.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from sparkport.errors import BadRequest
from sparkport.server.boundary import Rpc
from sparkport.server.descriptors import FILES, delimited, number
from sparkport.service.calls import Call
from sparkport.service.limits import ACTIONS
from sparkport.service.service import Service
from sparkport.wire.flight import protobuf_fields

__all__ = ["reflection_methods"]

_SERVICES = sorted(f"{file.package}.{service}" for file in FILES for service in file.services)
_BY_NAME = {file.name: file.encode() for file in FILES}
_BY_SYMBOL = {symbol: _BY_NAME[file.name] for file in FILES for symbol in file.symbols()}
_NOT_FOUND = grpc.StatusCode.NOT_FOUND.value[0]
_MOST_QUESTIONS = 1000
"""In one call: who knows all files has asked a dozen."""


def reflection_methods(service: Service) -> dict[str, Rpc]:
    """Versions v1 and v1alpha, which differ in name only. Where the server asks for tokens, this
    wants one too.
    """

    def answer(
        call: Call, requests: Iterator[bytes], _context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        with call.quotas.hold(ACTIONS):
            for _, request in zip(range(_MOST_QUESTIONS), requests, strict=False):
                yield _answer(request)

    names = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
    rpc = Rpc("ServerReflectionInfo", service.admit, answer)
    return {f"/{name}/{rpc.name}": rpc for name in names}


def _answer(request: bytes) -> bytes:
    """A ServerReflectionResponse, which repeats the question. Raises: BadRequest."""
    asked = {
        number: bytes(value)
        for number, value in protobuf_fields(memoryview(request))
        if not isinstance(value, int)
    }
    return delimited(1, asked.get(1, b"")) + delimited(2, request) + _found(asked)


def _found(asked: dict[int, bytes]) -> bytes:
    if 7 in asked:
        return delimited(
            6, b"".join(delimited(1, delimited(1, name.encode())) for name in _SERVICES)
        )
    if 6 in asked:  # proto3 has no extensions
        known = asked[6].decode(errors="replace") in _BY_SYMBOL
        return delimited(5, delimited(1, asked[6])) if known else _error("there is no such type")
    if 3 in asked:
        return _file(_BY_NAME.get(asked[3].decode(errors="replace")))
    if 4 in asked:
        return _file(_BY_SYMBOL.get(asked[4].decode(errors="replace")))
    if 5 in asked:
        return _error("there are no extensions")
    raise BadRequest("the reflection request asks for nothing")


def _file(encoded: bytes | None) -> bytes:
    return (
        _error("there is no such file or symbol")
        if encoded is None
        else delimited(4, delimited(1, encoded))
    )


def _error(message: str) -> bytes:
    return delimited(7, number(1, _NOT_FOUND) + delimited(2, message.encode()))
