"""The start-up rule: a server must not serve the whole network by accident."""

from __future__ import annotations

import pytest

from sparkport.cli.exposure import expect_safe
from sparkport.config import load_config
from sparkport.errors import BadRequest

TLS = {"tls_certificate": "tls.crt", "tls_key": "tls.key"}
TOKENS = {"tokens_file": "tokens"}


def refused(**flags: object) -> str:
    try:
        expect_safe(load_config(flags, {}))
    except BadRequest as error:
        return error.message
    return ""


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.9.1:1", "localhost:1", "[::1]:1"])
def test_on_this_machine_nothing_is_asked_for(address):
    assert refused(listen=address) == ""


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "data.example.com:1", "127.0.0.1.example.com:1"],
)
def test_elsewhere_there_must_be_encryption_and_tokens(address):
    message = refused(listen=address)
    assert "no encryption and no tokens" in message
    assert "tls_certificate" in message
    assert "tokens_file" in message
    assert message.endswith("say --insecure --anonymous")
    assert refused(listen=address, **TLS).endswith("say --anonymous")
    assert refused(listen=address, **TOKENS).endswith("say --insecure")
    assert refused(listen=address, insecure=True).endswith("say --anonymous")
    assert refused(listen=address, anonymous=True).endswith("say --insecure")


@pytest.mark.parametrize(
    "said",
    [
        {**TLS, **TOKENS},
        {**TLS, "authenticator": "a:b"},
        {**TLS, "jwks_url": "https://x", "jwt_issuer": "i", "jwt_audience": "a"},
        {**TLS, "anonymous": True},
        {"insecure": True, **TOKENS},
        {"insecure": True, "anonymous": True},
    ],
    ids=str,
)
def test_what_was_said_explicitly_is_allowed(said):
    assert refused(listen="0.0.0.0:1", **said) == ""


def test_the_status_page_is_not_encrypted():
    everything = {**TLS, **TOKENS, "listen": "0.0.0.0:1"}

    assert refused(**everything, http="127.0.0.1:80") == ""
    assert "status page" in refused(**everything, http="0.0.0.0:80")
    assert refused(**everything, http="0.0.0.0:80", insecure=True) == ""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tls_certificate": "tls.crt"}, "belong together"),
        ({"tls_key": "tls.key"}, "belong together"),
        ({**TLS, "location": "grpc://127.0.0.1:1"}, "write grpc+tls://"),
        ({"tls_client_ca": "ca.crt"}, "needs encryption"),
        ({**TOKENS, "anonymous": True}, "choose one"),
        ({"jwt_issuer": "x"}, "need jwks_url"),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused(flags, said):
    assert said in refused(**flags)
