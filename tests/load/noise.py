"""What strangers send to a port that is not even a request: noise, HTTP/2 that is none, silence,
and bad HTTP.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

_TIMEOUT = 5.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = b"\0\0\0\x04\0\0\0\0\0"

Address = tuple[str, int]


def random_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([0, 1, 9, 24, 100, 4096, 100_000]))


def broken_http2(chance: random.Random) -> bytes:
    """A preface, whole or not, and frames, of which most are wrong."""
    preface = chance.choice(
        [
            _PREFACE,
            _PREFACE,
            _PREFACE + _SETTINGS,
            _PREFACE[: chance.randrange(24)],
            b"GET / HTTP/1.1\r\n",
        ]
    )
    frames = b"".join(_frame(chance) for _ in range(chance.choice([0, 1, 5, 50])))
    return preface + frames * chance.choice([1, 1, 1, 20])


def _frame(chance: random.Random) -> bytes:
    payload = chance.randbytes(chance.choice([0, 1, 4, 5, 6, 8, 100, 5000]))
    length = chance.choice([len(payload)] * 5 + [0, 2**24 - 1, len(payload) + 1])
    kind = chance.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255])
    stream = chance.choice([0, 1, 1, 3, 2, 2**31 - 1])
    return (
        length.to_bytes(3, "big")
        + bytes([kind, chance.randrange(256)])
        + stream.to_bytes(4, "big")
        + payload
    )


def send(address: Address, data: bytes) -> None:
    """Send it, hear a little of what comes back, and go."""
    with suppress(OSError), socket.create_connection(address, _TIMEOUT) as connection:
        connection.sendall(data)
        connection.settimeout(0.05)
        connection.recv(4096)


def send_slowly(address: Address, data: bytes, stop: threading.Event) -> None:
    """Byte by byte."""
    with suppress(OSError), socket.create_connection(address, _TIMEOUT) as connection:
        for byte in data:
            connection.sendall(bytes([byte]))
            if stop.wait(0.02):
                return


@contextmanager
def silent(address: Address, count: int) -> Iterator[None]:
    """So many connections that say nothing, or only hello."""
    with ExitStack() as connections:
        for number in range(count):
            with suppress(OSError):
                connection = connections.enter_context(socket.create_connection(address, _TIMEOUT))
                connection.sendall([b"", _PREFACE, _PREFACE + _SETTINGS, _PREFACE[:10]][number % 4])
        yield


def http_request(chance: random.Random) -> bytes:
    """A request to the status page that may be one, or not."""
    method = chance.choice(
        ["GET", "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "X" * 5000, "", "\0"]
    )
    target = chance.choice(
        [
            *(
                "/",
                "/metrics",
                "/healthz",
                "/status.json",
                "/page.js",
                "/cancel",
                "/cancel/1",
                "/cancel?id=1",
            ),
            *("/../../etc/passwd", "/%2e%2e/x", "//", "*", "http://elsewhere/", "/\udcff"),
            *("/" + "a" * 70_000, "/?" + "q=1&" * 1000),
        ]
    )
    version = chance.choice(["HTTP/1.1"] * 6 + ["HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "", "\r"])
    headers = [f"Host: {chance.choice(['127.0.0.1', 'localhost', 'evil.example', ''])}"]
    for _ in range(chance.choice([0, 1, 2, 150])):
        name = chance.choice(
            [
                "Authorization",
                "Content-Length",
                "Transfer-Encoding",
                "Cookie",
                "X-Sparkport-Request",
                "X",
            ]
        )
        value = chance.choice(
            [
                "Bearer x",
                "-1",
                "99999999999",
                "chunked",
                "\0",
                "a" * 1000,
                "a" * 70_000,
                "1",
                "\xff",
            ]
        )
        headers.append(f"{name}: {value}")
    body = chance.randbytes(chance.choice([0, 0, 10, 5000]))
    text = "\r\n".join([f"{method} {target} {version}", *headers, "", ""])
    return text.encode("utf-8", "surrogateescape") + body


def http_status(address: Address, request: bytes) -> int | None:
    """The code of the answer; None when there is none."""
    deadline = time.monotonic() + _TIMEOUT
    with suppress(OSError), socket.create_connection(address, _TIMEOUT) as connection:
        connection.settimeout(0.3)
        with suppress(OSError):
            connection.sendall(request)
        answer = b""
        while b"\r\n" not in answer and time.monotonic() < deadline:
            part = connection.recv(4096)
            if not part:
                break
            answer += part
        words = answer.split(None, 2)
        if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit():
            return int(words[1])
    return None
