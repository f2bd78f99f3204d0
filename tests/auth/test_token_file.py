"""The file of tokens: its content, who may read it, and how soon a change counts."""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

import sparkport as sp
from sparkport.auth import TokenFile
from sparkport.auth.token_file import create_token, read_tokens, revoke_tokens
from sparkport.catalog import Identity
from sparkport.errors import BadRequest, NotFound
from sparkport.testing import DuckDBClient, ServerError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the file whenever it is asked, not once a second."""
    monkeypatch.setattr("sparkport.auth.watched.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("sparkport.auth.watched.SETTLE_SECONDS", 0.0)


def test_a_token_tells_all_that_is_known_about_its_owner(path):
    expires = datetime(2100, 1, 1, tzinfo=timezone.utc)
    token, known = create_token(
        path, "ada", ["analysts"], {"region": ("EU", "US"), "team": "x"}, expires
    )

    identity = TokenFile(path)(token)

    assert identity == Identity(
        "ada",
        frozenset({"analysts"}),
        {"region": ("EU", "US"), "team": "x"},
        expires.timestamp(),
        known.id,
    )
    assert TokenFile(path)(token + "x") is None
    assert TokenFile(path)("") is None


def test_the_file_holds_no_token_and_is_for_its_owner_only(path):
    token, known = create_token(path, "ada")

    assert token.removeprefix("spk_") not in path.read_text()
    assert known.sha256 not in token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) > 40


def test_permissions_and_comments_survive_other_tokens(path):
    first, _ = create_token(path, "ada")
    path.write_text(path.read_text() + "# of the night shift\n")
    path.chmod(0o640)
    second, known = create_token(path, "bob")

    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert "# of the night shift\n" in path.read_text()
    revoke_tokens(path, known.id)
    assert "# of the night shift\n" in path.read_text()
    authenticate = TokenFile(path)
    assert authenticate(first) is not None
    assert authenticate(second) is None


def test_a_token_that_has_expired_is_nobodys(path):
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    token, _ = create_token(path, "ada", expires=soon)
    before = TokenFile(path, clock=lambda: soon.timestamp() - 1)
    after = TokenFile(path, clock=soon.timestamp)

    identity = before(token)

    assert identity is not None
    assert before.recognises(identity)
    assert after(token) is None
    assert not after.recognises(identity)


@pytest.mark.usefixtures("at_once")
def test_new_tokens_count_and_revoked_ones_do_not(path):
    first, _ = create_token(path, "ada")
    authenticate = TokenFile(path)
    identity = authenticate(first)
    assert identity is not None

    second, _ = create_token(path, "bob")
    assert authenticate(second) is not None
    assert [each.principal for each in revoke_tokens(path, "ada")] == ["ada"]

    assert authenticate(first) is None
    assert not authenticate.recognises(identity)


@pytest.mark.usefixtures("at_once")
def test_who_is_no_longer_in_a_group_is_not_recognised_as_its_member(path):
    token, known = create_token(path, "ada", ["admins"])
    authenticate = TokenFile(path)
    identity = authenticate(token)
    assert identity is not None
    # What is handed out expires sooner.
    assert authenticate.recognises(replace(identity, expires=7.0))

    path.write_text(path.read_text().replace('"groups": ["admins"], ', ""))

    assert not authenticate.recognises(identity)
    assert authenticate(token) == replace(identity, groups=frozenset())
    assert not authenticate.recognises(Identity("ada", credential="nonsense"))
    assert not authenticate.recognises(Identity("bob", credential=known.id))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("broken", ["{ this is no JSON\n", None], ids=["broken", "missing"])
def test_a_broken_file_keeps_what_it_held_and_is_complained_about_once(path, caplog, broken):
    token, _ = create_token(path, "ada")
    authenticate = TokenFile(path)
    good = path.read_text()

    with caplog.at_level(logging.ERROR):
        if broken is None:
            path.unlink()
        else:
            path.write_text(broken)
        for _ in range(3):
            assert authenticate(token) is not None
    assert [each.name for each in caplog.records].count("sparkport.auth.token_file") == 1
    assert token not in caplog.text

    path.write_text("# none any more\n")
    assert authenticate(token) is None
    path.write_text(good)
    assert authenticate(token) is not None


def test_the_file_is_looked_at_once_a_second(path):
    token, _ = create_token(path, "ada")
    authenticate = TokenFile(path)
    assert authenticate(token) is not None
    revoke_tokens(path, "ada")
    deadline = time.monotonic() + 60

    while authenticate(token) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "line 2: this is no token"),
        ("[]", "line 2: this is no token"),
        ('{"id": "a", "principal": "ada"}', "line 2: this is no token"),
        (
            '{"id": "a", "principal": "ada", "sha256": "spk_secret"}',
            "the hash of a token, not the token itself",
        ),
        (
            '{"id": "a", "principal": "ada", "sha256": "%s", "expire": "2030-01-01"}',
            "a token has no 'expire'",
        ),
        (
            '{"id": "a", "principal": "ada", "sha256": "%s", "expires": "soon"}',
            "line 2: this is no token",
        ),
        (
            '{"id": "a", "principal": "group:x", "sha256": "%s"}',
            "cannot be the name of a principal",
        ),
        (
            '{"id": "a", "principal": "b", "sha256": "%s"}\n{"id": "a", "principal": "b", '
            '"sha256": "%s"}',
            "line 3: there is",
        ),
    ],
)
def test_a_line_that_is_no_token_is_named(path, line, said):
    path.write_text("# tokens\n" + line.replace("%s", "0" * 64) + "\n")

    with pytest.raises(BadRequest) as caught:
        TokenFile(path)
    assert said in caught.value.message


def test_a_line_may_be_written_by_hand(path):
    path.write_text(
        json.dumps(
            {"id": "a", "principal": "ada", "sha256": "F" * 64, "expires": "2030-01-01T00:00:00Z"}
        )
    )

    (token,) = read_tokens(path)

    assert token.sha256 == "f" * 64
    assert token.expires == datetime(2030, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("name", ["", " ", "*", "group:admins", "a\nb"])
def test_names_that_mean_something_else_are_refused(path, name):
    with pytest.raises(BadRequest, match="cannot be the name of a principal"):
        create_token(path, name)
    assert not path.exists()


def test_what_is_not_there_cannot_be_revoked(path):
    create_token(path, "ada")

    with pytest.raises(NotFound, match="'bob'"):
        revoke_tokens(path, "bob")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(BadRequest, match="cannot be written"):
        create_token(tmp_path / "file" / "tokens", "ada")
    with pytest.raises(BadRequest, match="cannot be read"):
        TokenFile(tmp_path / "missing")


def test_many_commands_at_once_lose_no_token(path):
    """The lock is a file lock, so threads test it as well as processes do."""
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda number: create_token(path, f"p{number}"), range(30), timeout=50))

    tokens = read_tokens(path)
    assert len(tokens) == 30
    assert len({each.id for each in tokens}) == 30
    assert [
        name for name in os.listdir(path.parent) if name not in ("tokens", ".tokens.lock")
    ] == []


@pytest.fixture
def server(path: Path) -> Iterator[str]:
    create_token(path, "somebody")
    builder = sp.CatalogBuilder("shop")
    builder.schema("s").table("t", pa.table({"a": [1, 2]}))
    settings = sp.ServerSettings(authenticate=TokenFile(path))
    with sp.Server(builder, "grpc://127.0.0.1:0", settings) as running:
        yield running.location


@pytest.mark.usefixtures("at_once")
def test_revoking_ends_also_what_was_handed_out(path, server):
    """With the option of ATTACH, half of the calls show signed handles in place of the token."""
    token, known = create_token(path, "ada")
    shown = flight.FlightCallOptions(
        timeout=60, headers=[(b"authorization", f"Bearer {token}".encode())]
    )
    nothing = flight.FlightCallOptions(timeout=60)
    with (
        DuckDBClient(server, "shop", attach_token=token, timeout=60) as client,
        flight.connect(server) as other,
    ):
        assert client.scan("s", "t").num_rows == 2
        ticket = (
            other.get_flight_info(flight.FlightDescriptor.for_path("s", "t"), shown)
            .endpoints[0]
            .ticket
        )
        assert other.do_get(ticket, nothing).read_all().num_rows == 2

        revoke_tokens(path, known.id)

        with pytest.raises((flight.FlightError, OSError), match="no longer valid"):
            other.do_get(ticket, nothing).read_all()
        with pytest.raises(ServerError, match=r"not known here|no longer valid"):
            client.scan("s", "t")
