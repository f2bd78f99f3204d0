"""A bare client of an S3 server, which shows what the server takes by itself."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import time
from urllib.parse import quote

from tests.parts.s3 import REGION, S3Server

__all__ = ["BareStore"]

_UNSIGNED = "UNSIGNED-PAYLOAD"


class BareStore:
    """Sends requests over one connection, which stays open if the server lets it."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._connection = http.client.HTTPConnection(*server.address, timeout=60)

    def get(self, location: str, start: int, length: int) -> float:
        """The seconds that the server takes to give a range of an object."""
        headers = {"range": f"bytes={start}-{start + length - 1}"}
        return self._timed("GET", _key(location), None, headers, length)

    def put(self, location: str, length: int) -> float:
        """The seconds that the server takes to keep an object."""
        return self._timed("PUT", _key(location), bytes(length), {}, 0)

    def size(self, location: str) -> int:
        """The length of an object."""
        self._connection.request("HEAD", *self._signed("HEAD", _key(location)))
        answer = self._connection.getresponse()
        answer.read()
        return int(answer.headers["content-length"])

    def _timed(
        self, method: str, key: str, body: bytes | None, headers: dict[str, str], expected: int
    ) -> float:
        path, _, signed = self._signed(method, key)
        began = time.perf_counter()
        self._connection.request(method, path, body, {**signed, **headers})
        answer = self._connection.getresponse()
        length = len(answer.read())
        took = time.perf_counter() - began
        if answer.status >= 300 or length < expected:
            raise RuntimeError(f"the store answered {answer.status} with {length} bytes")
        return took

    def _signed(self, method: str, key: str) -> tuple[str, None, dict[str, str]]:
        """The path, no body, and the headers, by AWS's fourth version of signatures."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        path = "/" + quote(f"{self._server.bucket}/{key}")
        headers = {
            "host": "{}:{}".format(*self._server.address),
            "x-amz-content-sha256": _UNSIGNED,
            "x-amz-date": now,
        }
        names = ";".join(headers)
        lines = (f"{name}:{value}" for name, value in headers.items())
        request = "\n".join([method, path, "", *lines, "", names, _UNSIGNED])
        scope = (now[:8], REGION, "s3", "aws4_request")
        text = "\n".join(
            ["AWS4-HMAC-SHA256", now, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()]
        )
        secret = f"AWS4{self._server.secret_key}".encode()
        for each in scope:
            secret = hmac.digest(secret, each.encode(), "sha256")
        signature = hmac.digest(secret, text.encode(), "sha256").hex()
        credential = "/".join((self._server.access_key, *scope))
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, "
            f"Signature={signature}"
        )
        return path, None, headers


def _key(location: str) -> str:
    return location.partition("://")[2].partition("/")[2]
