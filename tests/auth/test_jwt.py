"""Tokens of an OpenID provider, which here is an HTTP server with real keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from tests.auth.provider import AUDIENCE, ED, ISSUER, OTHER_RSA, P256, RSA, Provider, public, token

from sparkport.auth import JWTAuthenticator
from sparkport.auth.jwks import KeySet
from sparkport.catalog import Identity
from sparkport.errors import BadRequest, PreconditionFailed, Unauthenticated


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("sparkport.auth.jwks._FETCH_SECONDS", 60.0)
    made = Provider()
    yield made
    made.close()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def authenticator(provider: Provider, clock: Clock | None = None, **more: Any) -> JWTAuthenticator:
    keys = KeySet(provider.url, clock=clock or time.monotonic)
    return JWTAuthenticator(provider.url, ISSUER, AUDIENCE, keys=keys, **more)


def test_a_signed_token_tells_who_it_is(provider):
    provider.keys = [public(RSA, "one")]
    authenticate = authenticator(
        provider, attributes=("region", "team", "level", "address.country")
    )
    ends = int(time.time()) + 300
    claims: dict[str, Any] = {
        "groups": ["a", "b"],
        "region": "EU",
        "team": ["x", "y"],
        "level": 3,
        "address": {"country": "NL"},
    }

    found = authenticate(token(exp=ends, **claims))

    attributes: dict[str, str | tuple[str, ...]] = {
        "region": "EU",
        "team": ("x", "y"),
        "level": "3",
        "address_country": "NL",
    }
    assert found == Identity("ada", frozenset({"a", "b"}), attributes, float(ends))
    assert authenticate(token(exp=ends)) == Identity("ada", expires=float(ends))
    assert provider.asked == 1


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [*((RSA, each) for each in ("RS256", "RS512", "PS256")), (P256, "ES256"), (ED, "EdDSA")],
)
def test_signatures_of_rsa_ecdsa_and_eddsa_are_understood(provider, key, algorithm):
    provider.keys = [public(OTHER_RSA, "other"), public(key, "one")]
    authenticate = authenticator(provider)

    assert authenticate(token(key, algorithm)) is not None
    assert authenticate(token(key, algorithm, kid=None)) is not None


def test_claims_may_be_named_and_nested(provider):
    provider.keys = [public(RSA, "one")]
    authenticate = authenticator(
        provider, principal_claim="email", groups_claim="realm_access.roles"
    )

    found = authenticate(token(email="ada@example.com", realm_access={"roles": ["r"]}))

    assert found is not None
    assert (found.name, found.groups) == ("ada@example.com", frozenset({"r"}))
    assert authenticate(token()) is None  # without that claim


@pytest.mark.parametrize("name", ["group:admins", "*", "", 7, None])
def test_a_principal_cannot_call_itself_a_group(provider, name):
    provider.keys = [public(RSA, "one")]

    assert authenticator(provider, principal_claim="nick")(token(nick=name)) is None


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": int(time.time()) - 120}, "has expired"),
        ({"aud": "another"}, "for another service"),
        ({"aud": ["a", "b"]}, "for another service"),
        ({"iss": "https://evil.example.com"}, "from another issuer"),
    ],
)
def test_a_token_of_another_time_or_place_is_refused_and_says_why(provider, claims, said):
    provider.keys = [public(RSA, "one")]

    with pytest.raises(Unauthenticated, match=said):
        authenticator(provider)(token(**claims))


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"aud": None},
        {"iss": None},
        {"nbf": 4_000_000_000},
        {"exp": "tomorrow"},
        {"sub": None},
    ],
    ids=str,
)
def test_a_token_that_lacks_something_is_nobodys(provider, claims):
    provider.keys = [public(RSA, "one")]

    assert authenticator(provider)(token(**claims)) is None


def test_clocks_may_differ_by_a_few_seconds(provider):
    provider.keys = [public(RSA, "one")]

    assert (
        authenticator(provider)(token(exp=int(time.time()) - 5, nbf=int(time.time()) + 5))
        is not None
    )


def forged_tokens() -> dict[str, str]:
    pem = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    good = token()
    _, body, signature = good.split(".")
    confused = f"{part({'alg': 'HS256', 'kid': 'one'})}.{body}"
    mac = (
        base64.urlsafe_b64encode(hmac.digest(pem, confused.encode(), hashlib.sha256))
        .decode()
        .rstrip("=")
    )
    other = json.loads(base64.urlsafe_b64decode(body + "==")) | {"sub": "root"}
    own = public(OTHER_RSA, "one")
    no_algorithm = part({"alg": ["RS256"], "kid": "one"})
    no_name = part({"alg": "RS256", "kid": {"a": 1}})
    content = {"sub": "root", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 60}
    return {
        "no signature": f"{part({'alg': 'none', 'kid': 'one'})}.{body}.",
        "none, signed": f"{part({'alg': 'none', 'kid': 'one'})}.{body}.{signature}",
        "the public key as secret": f"{confused}.{mac}",
        "other claims": f"{good.split('.')[0]}.{part(other)}.{signature}",
        "another key": token(OTHER_RSA),
        "another kind of key": token(P256, "ES256"),
        "its own key": jwt.encode(content, OTHER_RSA, "RS256", {"jwk": own, "kid": "one"}),
        "an unknown algorithm": f"{part({'alg': 'RS999', 'kid': 'one'})}.{body}.{signature}",
        "an algorithm that is no text": f"{no_algorithm}.{body}.{signature}",
        "a name of a key that is no text": f"{no_name}.{body}.{signature}",
        "unknown key": token(kid="two"),
        "garbage": "a.b.c",
        "no token": "spk_abc",
        "dots": "..",
        "not ASCII": "é.ü.ß",
        "long": "a" * 100_000 + ".b.c",
    }


FORGED = forged_tokens()


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_token_is_nobodys(provider, kind):
    provider.keys = [public(RSA, "one"), public(P256, "p256")]

    assert authenticator(provider)(FORGED[kind]) is None


def test_a_key_is_used_only_for_the_algorithm_that_it_names(provider):
    provider.keys = [public(RSA, "one", alg="RS512")]
    authenticate = authenticator(provider)

    assert authenticate(token(algorithm="RS256")) is None
    assert authenticate(token(algorithm="RS512")) is not None


def test_keys_that_are_not_for_signatures_are_not_used(provider):
    shared = {
        "kty": "oct",
        "k": base64.urlsafe_b64encode(b"x" * 32).decode(),
        "kid": "one",
        "alg": "HS256",
    }
    short = public(rsa.generate_private_key(65537, 1024), "short")
    private = {**RSAAlgorithm.to_jwk(OTHER_RSA, as_dict=True), "kid": "private"}
    provider.keys = [
        shared,
        public(RSA, "enc", use="enc"),
        short,
        private,
        {"kty": "new"},
        public(P256, "good"),
    ]
    keys = KeySet(provider.url)

    assert [each.kid for each in keys.fetch()] == ["good"]
    assert (
        authenticator(provider)(jwt.encode({"sub": "x"}, b"x" * 32, "HS256", {"kid": "one"}))
        is None
    )


def test_a_new_key_is_fetched_when_a_token_names_it(provider):
    clock = Clock()
    provider.keys = [public(RSA, "one")]
    authenticate = authenticator(provider, clock)
    assert authenticate(token()) is not None

    provider.keys = [public(OTHER_RSA, "two")]
    rotated = token(OTHER_RSA, kid="two")
    assert authenticate(rotated) is None  # it was asked a moment ago
    clock.now += 11
    assert authenticate(rotated) is not None
    assert authenticate(token()) is None  # the old key is gone
    assert provider.asked == 2


def test_tokens_of_unknown_keys_do_not_make_it_ask_again_and_again(provider):
    clock = Clock()
    provider.keys = [public(RSA, "one")]
    authenticate = authenticator(provider, clock)

    for number in range(50):
        assert authenticate(token(OTHER_RSA, kid=str(number))) is None
    assert provider.asked == 1


def test_keys_are_fetched_again_now_and_then(provider):
    clock = Clock()
    provider.keys = [public(RSA, "one")]
    authenticate = authenticator(provider, clock)
    assert authenticate(token()) is not None

    provider.keys = []
    # What was stolen is replaced.
    provider.body = json.dumps({"keys": [public(OTHER_RSA, "one")]}).encode()
    clock.now += 301
    assert authenticate(token()) is not None  # no caller waits for it
    deadline = time.monotonic() + 60
    while authenticate(token()) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert provider.asked == 2


def test_while_the_provider_is_down_old_keys_are_good_for_an_hour(provider, caplog):
    clock = Clock()
    provider.keys = [public(RSA, "one")]
    authenticate = authenticator(provider, clock)
    assert authenticate(token()) is not None

    provider.status = 500
    with caplog.at_level(logging.CRITICAL):
        clock.now += 3500
        assert authenticate(token()) is not None
        clock.now += 200
        with pytest.raises(Unauthenticated, match="cannot be had at the moment"):
            authenticate(token())
    provider.status = 200
    clock.now += 11
    assert authenticate(token()) is not None


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"keys": 7}', b'{"keys": []}', b" " * 2_000_000],
    ids=lambda each: str(each[:20]),
)
def test_a_provider_that_answers_nonsense_lets_nobody_in(provider, body):
    provider.body = body

    with pytest.raises(Unauthenticated, match="cannot be had at the moment"):
        authenticator(provider)(token())


def test_without_a_provider_nobody_is_let_in():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # it does not listen, and no other process can
        authenticate = JWTAuthenticator(
            f"http://127.0.0.1:{deaf.getsockname()[1]}/jwks", ISSUER, AUDIENCE
        )

        with pytest.raises(Unauthenticated, match="cannot be had"):
            authenticate(token())
        with pytest.raises(PreconditionFailed, match=r"cannot be fetched: .*refused"):
            authenticate.keys.fetch()


@pytest.mark.parametrize(
    "target", ["http://example.com/keys", "file:///etc/passwd", "ftp://127.0.0.1/"]
)
def test_keys_do_not_come_from_where_anybody_could_change_them(provider, target):
    with pytest.raises(BadRequest, match="https"):
        KeySet(target)
    provider.redirect = target
    with pytest.raises(PreconditionFailed):
        KeySet(provider.url).fetch()


def test_issuer_and_audience_must_be_said(provider):
    for issuer, audience in (("", AUDIENCE), (ISSUER, "")):
        with pytest.raises(BadRequest, match="jwt_issuer and jwt_audience"):
            JWTAuthenticator(provider.url, issuer, audience)
