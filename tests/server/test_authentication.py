"""Tokens: every call needs a token that the server knows, and catalogs learn its owner."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest

import sparkport as sp
from sparkport.testing import DuckDBClient, ServerError

TOKEN = "correct-horse"
REFUSED = (flight.FlightError, OSError)  # while it reads a stream, pyarrow raises OSError
SEEN: list[str | None] = []


@pytest.fixture
def location() -> Iterator[str]:
    SEEN.clear()
    builder = sp.CatalogBuilder("shop")
    schema = builder.schema("s")
    arrow_schema = pa.schema([("who", pa.string())])

    def who(ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        SEEN.append(ctx.principal)
        yield pa.record_batch({"who": pa.array([ctx.principal], pa.string())})

    schema.table("who", who, arrow_schema=arrow_schema)

    @schema.scalar_function
    def me(ctx: sp.Context) -> pa.string():  # type: ignore[valid-type]
        return pa.scalar(ctx.principal, pa.string())

    @builder.action
    def whoami(ctx: sp.Context, parameter: bytes) -> str:
        return ctx.principal or "nobody"

    settings = sp.ServerSettings(authenticate=sp.TokenAuthenticator({TOKEN: "ada", "other": "bob"}))
    with sp.Server(builder, "grpc://127.0.0.1:0", settings) as server:
        yield server.location


@pytest.mark.parametrize("token", [None, "wrong", "Correct-Horse", TOKEN + " ", "o"])
def test_without_a_token_that_is_known_nothing_is_told(location: str, token: str | None) -> None:
    with DuckDBClient(location, "shop", token=token, timeout=60) as client:
        if token == TOKEN + " ":  # blanks around it do not count
            assert client.scan("s", "who").to_pylist() == [{"who": "ada"}]
            return
        with pytest.raises(ServerError) as caught:
            client.scan("s", "who")
        assert caught.value.code == "UNAUTHENTICATED"
        assert TOKEN not in str(caught.value)
    assert SEEN == []


def test_catalogs_functions_and_actions_learn_whose_token_it_is(location: str) -> None:
    for token, name in ((TOKEN, "ada"), ("other", "bob")):
        with DuckDBClient(location, "shop", token=token, timeout=60) as client:
            assert client.scan("s", "who").to_pylist() == [{"who": name}]
            assert client.call("s", "me", {}, rows=2).to_pylist() == [name, name]
            assert client.action("whoami") == [name.encode()]


def test_every_call_is_asked_for_a_token(location: str) -> None:
    descriptor = flight.FlightDescriptor.for_path("s", "who")
    with flight.connect(location) as client:
        options = flight.FlightCallOptions(timeout=60)
        calls = [
            lambda: list(client.list_flights(options=options)),
            lambda: client.list_actions(options),
            lambda: client.get_flight_info(descriptor, options),
            lambda: client.get_schema(descriptor, options),
            lambda: client.do_get(flight.Ticket(b"x"), options).read_all(),
            lambda: list(client.do_action(flight.Action("whoami", b""), options)),
            lambda: client.authenticate_basic_token("ada", "secret", options),
        ]
        for call in calls:
            with pytest.raises(REFUSED, match="wants a token"):
                call()
        writer, _ = client.do_exchange(descriptor, options)
        with pytest.raises(REFUSED, match="wants a token"):
            writer.close()
        writer, _ = client.do_put(descriptor, pa.schema([("a", pa.int64())]), options)
        with pytest.raises(REFUSED, match="wants a token"):
            writer.close()


def test_what_was_handed_out_stands_for_the_token_of_whom_it_was_handed_out_to(
    location: str,
) -> None:
    """The client sends the token of ATTACH with half of its calls (airport §2.3)."""
    options = flight.FlightCallOptions(
        timeout=60, headers=[(b"authorization", f"Bearer {TOKEN}".encode())]
    )
    theirs = flight.FlightCallOptions(timeout=60, headers=[(b"authorization", b"Bearer other")])
    nobody = flight.FlightCallOptions(timeout=60)
    with flight.connect(location) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path("s", "who"), options)
        ticket = info.endpoints[0].ticket
        for shown in (options, nobody):
            assert client.do_get(ticket, shown).read_all().to_pylist() == [{"who": "ada"}]
        with pytest.raises(REFUSED, match="somebody else"):
            client.do_get(ticket, theirs).read_all()
        with pytest.raises(REFUSED, match="wants a token"):
            client.get_flight_info(flight.FlightDescriptor.for_path("s", "who"), nobody)
        with pytest.raises(REFUSED, match="wants a token"):
            client.do_get(flight.Ticket(ticket.ticket[:-1]), nobody).read_all()


def test_tokens_and_names_must_not_be_empty() -> None:
    for tokens in ({"": "ada"}, {"token": ""}):
        with pytest.raises(sp.BadRequest):
            sp.TokenAuthenticator(tokens)


def test_an_authenticator_that_fails_lets_nobody_in() -> None:
    def broken(token: str) -> str | None:
        raise RuntimeError("the directory is down")

    builder = sp.CatalogBuilder("shop")
    builder.schema("s").table("t", pa.table({"a": [1]}))
    settings = sp.ServerSettings(authenticate=broken)
    with (
        sp.Server(builder, "grpc://127.0.0.1:0", settings) as server,
        DuckDBClient(server.location, "shop", token="x", timeout=60) as client,
        pytest.raises(ServerError, match="internal error") as caught,
    ):
        client.scan("s", "t")
    assert "directory" not in str(caught.value)


def test_the_sql_to_paste_says_where_the_token_goes() -> None:
    settings = sp.ServerSettings(authenticate=sp.TokenAuthenticator({TOKEN: "ada"}))
    greeting = sp.Server(sp.CatalogBuilder("shop"), "grpc://127.0.0.1:1", settings).greeting

    assert (
        "ATTACH 'shop' (TYPE airport, LOCATION 'grpc://127.0.0.1:1', auth_token '<your token>');"
        in greeting
    )
    assert TOKEN not in greeting
    assert "auth_token" not in sp.Server(sp.CatalogBuilder("shop"), "grpc://127.0.0.1:1").greeting
