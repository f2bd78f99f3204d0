"""Strangers at a server that wants tokens: noise, broken HTTP/2, spoiled requests, forged handles,
silence.

    python -m tests.load.fuzz --seconds 600

Whatever they send, they are told nothing but what is wrong with it, the server goes on serving
those it knows, its memory does not grow, and nothing happens that nobody foresaw.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import grpc
import pyarrow.flight as flight
from tests.load import noise
from tests.load.serving import Ground, Served, sample
from tests.server.catalogs import numbers
from tests.server.mutated_server import COLUMNS
from tests.server.mutations import KINDS, LEVELS, Mutation, Request, join, requests
from tests.server.raw_client import (
    TIMEOUT,
    Headers,
    RawClient,
    action_message,
    endpoints_body,
    failure_of,
    path,
    ticket_message,
)
from tests.server.test_mutated_requests import UNREADABLE

TO_STRANGERS = frozenset(
    {"UNAUTHENTICATED", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "CANCELLED"}
)
"""What somebody is told who has not said who it is; CANCELLED for keeping others waiting, on a
machine that is busy.
"""
TO_KNOWN = TO_STRANGERS | {
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "PERMISSION_DENIED",
}
MARGIN_MB = 96.0
"""By so much the server may grow: what its threads and its allocator keep."""
SILENT = 200
_MORE_SECONDS = 60.0


class Known(RawClient):
    """A client that says who it is with every call."""

    def __init__(self, location: str, token: str) -> None:
        super().__init__(location)
        self._known = {"authorization": f"Bearer {token}"}

    def open(
        self, method: str, messages: Any, headers: Headers | None = None, timeout: float = TIMEOUT
    ) -> Any:
        return super().open(method, messages, {**self._known, **(headers or {})}, timeout)

    def call(self, method: str, messages: Any, headers: Headers | None = None) -> list[bytes]:
        return super().call(method, messages, {**self._known, **(headers or {})})


class Fuzz:
    """One attack on a server, by several threads."""

    def __init__(self, served: Served, token: str, http: noise.Address, seed: int) -> None:
        self.served = served
        self.codes: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self._token = token
        self._http = http
        self._address = _address(served.location)
        self._seeds = random.Random(seed)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        with Known(served.location, token) as known:
            self._requests = [
                each for several in requests(known, COLUMNS).values() for each in several
            ]
            descriptor = known.list_schemas("steady")["s"]["t"].descriptor
            (endpoint,) = known.endpoints(descriptor)
            self._descriptor, self._ticket = descriptor, endpoint.ticket.ticket
            signed = [
                info.descriptor for name in ("cat", "steady") for info in _tables(known, name)
            ]
            scans = [each.messages[0] for each in self._requests if each.method == "DoGet"]
            self._handles = [
                *(each.path[-1] for each in signed),
                *(flight.Ticket.deserialize(each).ticket for each in scans),
            ]
            answer = known.action("create_transaction", {"catalog_name": "cat"})[0]
            self._transaction = answer.rsplit(b"identifier", 1)[1][2:]

    def run(self, seconds: float, threads: int = 4, attacks: Collection[str] = ()) -> None:
        """Attack for so long, and up to a minute longer until these attacks have been made."""
        self._stop.clear()
        deadline = time.monotonic() + seconds
        chances = [random.Random(self._seeds.random()) for _ in range(threads)]
        running = [
            threading.Thread(target=self._attack, args=[chance], daemon=True) for chance in chances
        ]
        running.append(threading.Thread(target=self._be_silent, daemon=True))
        for thread in running:
            thread.start()
        while not self.wrong and self.served.process.poll() is None:
            late = time.monotonic() - deadline
            if late > _MORE_SECONDS or (late > 0 and self.made.issuperset(attacks)):
                break
            self.check()
            time.sleep(min(1.0, seconds / 5))
        self._stop.set()
        for thread in running:
            thread.join(60)
            if thread.is_alive():
                self._is_wrong("an attack hangs")
        self.check()

    @property
    def made(self) -> set[str]:
        """The attacks that have been made."""
        with self._lock:
            return {name for name, _ in self.codes}

    def check(self) -> None:
        """Somebody known is served, whatever the others do."""
        try:
            with Known(self.served.location, self._token) as known:
                assert known.scan(path("steady", "s", "t")).table.equals(numbers())
        except (grpc.RpcError, AssertionError) as error:
            self._is_wrong(f"somebody known was not served: {error!r:.500}")

    # -- attacks

    def _attack(self, chance: random.Random) -> None:
        attacks = [(name, weight, attack) for name, (weight, attack) in _ATTACKS.items()]
        client = RawClient(self.served.location)
        try:
            while not self._stop.is_set():
                name, _, attack = chance.choices(attacks, [weight for _, weight, _ in attacks])[0]
                try:
                    code = attack(self, client, chance)
                except Exception as error:
                    self._is_wrong(f"{name}: {type(error).__name__}: {error}")
                    return
                with self._lock:
                    self.codes[name, code] += 1
        finally:
            client.close()

    def without_token(self, client: RawClient, chance: random.Random) -> str:
        """What a stranger sends holds no handle of this server's that it was not given, so nothing
        may succeed.
        """
        request = self._spoiled(chance)
        if self._holds_handle(request):
            return "left out"
        return self._told(client, request, {}, TO_STRANGERS)

    def with_wrong_token(self, client: RawClient, chance: random.Random) -> str:
        token = chance.choice(
            [
                "".join(
                    chance.choices(
                        "abcdefghijklmnopqrstuvwxyz.-_=+/ 0123456789", k=chance.randrange(200)
                    )
                ),
                self._token[: chance.randrange(len(self._token))],
                self._token[:-1] + ("a" if self._token[-1] != "a" else "b"),
                self._token.swapcase(),
                self._token * 50,
                "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.",
            ]
        )
        kind = chance.choice(["Bearer", "Bearer", "bearer", "Basic", "Token", ""])
        if chance.random() < 0.3:
            request = chance.choice(self._requests)
        else:
            request = self._spoiled(chance)
        return self._told(client, request, {"authorization": f"{kind} {token}"}, TO_STRANGERS)

    def with_forged_handle(self, client: RawClient, chance: random.Random) -> str:
        """A descriptor, ticket or transaction id that was handed out to somebody, and altered."""
        mutations = _mutations(chance)
        match chance.randrange(4):
            case 0:
                ticket = _apply(self._ticket, mutations)
                if ticket == self._ticket:
                    return "unaltered"
                return self._told(
                    client, Request("DoGet", (ticket_message(ticket),)), {}, TO_STRANGERS
                )
            case 1:
                elements = list(self._descriptor.path)
                index = chance.randrange(len(elements))
                elements[index] = _apply(elements[index], mutations)
                if elements == self._descriptor.path:
                    return "unaltered"
                body = chance.choice(
                    [{"descriptor": _path(elements)}, {**_ENDPOINTS, "descriptor": _path(elements)}]
                )
                name = chance.choice(["endpoints", "flight_info", "column_statistics"])
                return self._told(
                    client, Request("DoAction", (action_message(name, body),)), {}, TO_STRANGERS
                )
            case 2:
                elements = [_apply(each, mutations) for each in self._descriptor.path]
                if elements == self._descriptor.path:
                    return "unaltered"
                headers = {
                    "airport-operation": chance.choice(["insert", "delete", "scalar_function"])
                }
                exchange = chance.choice(
                    [each for each in self._requests if each.method == "DoExchange"]
                )
                messages = (join([(1, _path(elements))]), *exchange.messages[1:])
                return self._told(
                    client, Request("DoExchange", messages, headers), {}, TO_STRANGERS
                )
            case _:
                transaction = _apply(self._transaction, mutations)
                if transaction == self._transaction:
                    return "unaltered"
                body = {"transaction_id": transaction, "catalog_name": "cat"}
                name = chance.choice(
                    ["get_transaction_status", "commit_transaction", "rollback_transaction"]
                )
                known = {"authorization": f"Bearer {self._token}"} if chance.random() < 0.5 else {}
                request = Request("DoAction", (action_message(name, body),))
                return self._told(
                    client,
                    request,
                    known,
                    TO_KNOWN if known else TO_STRANGERS,
                    may_succeed=bool(known),
                )

    def with_huge_headers(self, client: RawClient, chance: random.Random) -> str:
        size = chance.choice([10_000, 200_000, 900_000, 1_200_000, 3_000_000])
        name = chance.choice(
            [
                "authorization",
                "airport-trace-id",
                "airport-operation",
                "x-stranger",
                "return-chunks",
            ]
        )
        headers = {name: "x" * size}
        # A connection of its own: gRPC's client remembers what it was told about sizes.
        with RawClient(self.served.location) as other:
            request = chance.choice(
                [each for each in self._requests if not self._holds_handle(each)]
            )
            return self._told(other, request, headers, TO_STRANGERS)

    def at_other_services(self, client: RawClient, chance: random.Random) -> str:
        """Only health is told to everybody."""
        method = chance.choice(_OTHER_SERVICES)
        sent = chance.choice(
            [b"", b"\x0a\x00", b"\x3a\x00", b"\x0a\x28arrow.flight.protocol.FlightService"]
        )
        sent = chance.choice(
            [sent, chance.randbytes(chance.randrange(100)), _apply(sent, _mutations(chance))]
        )
        call = client.channel.stream_stream(method)(
            iter([sent]), timeout=0.3 if "Watch" in method else 20
        )
        try:
            answers = list(call)
        except grpc.RpcError as error:
            failure = failure_of(error)
            watched = "Watch" in method and failure.code == "DEADLINE_EXCEEDED"
            if (
                not watched and failure.code not in TO_STRANGERS | {"NOT_FOUND"}
            ) or UNREADABLE.search(failure.message):
                self._is_wrong(f"{method} was told {failure.code}: {failure.message} ({sent!r})")
            return failure.code
        if "Health" not in method:
            self._is_wrong(f"a stranger's {method} succeeded: {sent!r} with {answers!r}")
        return "OK"

    def noise(self, client: RawClient, chance: random.Random) -> str:
        noise.send(self._address, noise.random_bytes(chance))
        return "sent"

    def broken_http2(self, client: RawClient, chance: random.Random) -> str:
        noise.send(self._address, noise.broken_http2(chance))
        return "sent"

    def slowly(self, client: RawClient, chance: random.Random) -> str:
        noise.send_slowly(self._address, noise.broken_http2(chance)[:40], self._stop)
        return "sent"

    def at_status_page(self, client: RawClient, chance: random.Random) -> str:
        status = noise.http_status(self._http, noise.http_request(chance))
        if status is not None and status >= 500 and status not in (501, 505):
            self._is_wrong(f"the status page answers {status}")
        return str(status)

    # -- helpers

    def _told(
        self,
        client: RawClient,
        request: Request,
        headers: Mapping[str, str],
        allowed: frozenset[str],
        *,
        may_succeed: bool = False,
    ) -> str:
        try:
            answer = client.call(request.method, request.sent, {**request.headers, **headers})
        except grpc.RpcError as error:
            failure = failure_of(error)
            if failure.code not in allowed or UNREADABLE.search(failure.message):
                self._is_wrong(
                    f"{request.method} was told {failure.code}: {failure.message} "
                    f"({request!r:.1000})"
                )
            return failure.code
        if not may_succeed:
            self._is_wrong(
                f"a stranger's {request.method} succeeded: {request!r:.1000} with {answer!r:.300}"
            )
        return "OK"

    def _spoiled(self, chance: random.Random) -> Request:
        request, other = chance.choice(self._requests), chance.choice(self._requests)
        return chance.choice(LEVELS)(request, chance.randrange(30), other, _mutations(chance))

    def _holds_handle(self, request: Request) -> bool:
        """Whether what was handed out to an authorised client is in it, which stands for its
        token.
        """
        sent = b"".join(request.messages)
        return any(handle in sent for handle in self._handles)

    def _be_silent(self) -> None:
        """Connections that say nothing, or only hello."""
        with noise.silent(self._address, SILENT):
            self._stop.wait()

    def _is_wrong(self, text: str) -> None:
        with self._lock:
            self.wrong.append(text)

    def table(self) -> str:
        """For people."""
        names = sorted({name for name, _ in self.codes})
        lines = []
        for name in names:
            codes = [
                f"{code} {count}"
                for (each, code), count in sorted(self.codes.items())
                if each == name
            ]
            lines.append(f"{name:<20}{', '.join(codes)}")
        return "\n".join(lines)


_Attack = Callable[[Fuzz, RawClient, random.Random], str]
_ATTACKS: Mapping[str, tuple[int, _Attack]] = {
    "without token": (40, Fuzz.without_token),
    "wrong token": (20, Fuzz.with_wrong_token),
    "forged handle": (25, Fuzz.with_forged_handle),
    "other services": (8, Fuzz.at_other_services),
    "huge headers": (1, Fuzz.with_huge_headers),
    "noise": (5, Fuzz.noise),
    "broken HTTP/2": (10, Fuzz.broken_http2),
    "slowly": (1, Fuzz.slowly),
    "status page": (10, Fuzz.at_status_page),
}
_OTHER_SERVICES = (
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/arrow.flight.protocol.FlightService/PollFlightInfo",
    "/arrow.flight.protocol.FlightService/Nothing",
    "/nothing/at-all",
    "/",
)
_ENDPOINTS = endpoints_body(path("s", "t"))


def _tables(client: RawClient, catalog: str) -> list[flight.FlightInfo]:
    return [info for tables in client.list_schemas(catalog).values() for info in tables.values()]


def _mutations(chance: random.Random) -> list[Mutation]:
    return [
        Mutation(
            chance.choice(sorted(KINDS)),
            chance.random(),
            chance.random(),
            chance.randbytes(chance.randrange(13)),
        )
        for _ in range(chance.randint(1, 3))
    ]


def _apply(data: bytes, mutations: list[Mutation]) -> bytes:
    for mutation in mutations:
        data = mutation(data, data[::-1])
    return data[:20_000]


def _path(elements: list[bytes]) -> bytes:
    """A descriptor; Arrow itself would complain of names that are not text."""
    return b"\x08\x01" + join([(3, each) for each in elements])


def _address(url: str) -> noise.Address:
    host, port = url.split("://")[1].rsplit(":", 1)
    return host, int(port)


def fuzz(
    folder: Path, seconds: float, warm_up: float, seed: int, attacks: Collection[str] = ()
) -> tuple[Fuzz, str, list[str]]:
    """Attack a server; what has come of it, how its memory went, and what is wrong."""
    ground = Ground(
        folder,
        lake=False,
        catalogs=["tests.load.fuzzed_catalogs:cat", "tests.load.fuzzed_catalogs:steady"],
        flags=["--http", "127.0.0.1:0", "--log-level", "info"],
    )
    with ground.serving() as served:
        page = re.search(r"status page on (http://\S+)", served.log.read_text())
        assert page is not None
        attack = Fuzz(served, ground.tokens["ada"], _address(page[1]), seed)
        attack.run(warm_up)
        before = sample(served)
        attack.run(seconds, attacks=attacks)
        time.sleep(1)
        after = sample(served)
        wrong = [*attack.wrong, *ground.unforeseen()]
        if after.server_mb > before.server_mb + MARGIN_MB:
            wrong.append(f"the server grew from {before.server_mb:.0f} to {after.server_mb:.0f} MB")
        if served.terminate(60) != 0:
            wrong.append(f"the server ended with {served.process.returncode}")
    memory = f"{before.server_mb:.0f} → {after.server_mb:.0f} MB"
    text = f"{memory}, {before.threads} → {after.threads} threads"
    return attack, text, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        attack, memory, wrong = fuzz(
            Path(folder), options.seconds, min(30.0, options.seconds / 4), time.time_ns()
        )
    lines = [attack.table(), memory, *(["WRONG:", *wrong[:20]] if wrong else ["nothing is wrong"])]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
