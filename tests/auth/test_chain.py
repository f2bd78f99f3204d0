"""Several authenticators in one."""

from __future__ import annotations

import pytest

from sparkport.auth import AuthenticatorChain, TokenAuthenticator, TokenFile
from sparkport.auth.token_file import create_token, revoke_tokens
from sparkport.catalog import Identity
from sparkport.errors import Unauthenticated


def unavailable(token: str) -> Identity | None:
    raise Unauthenticated("try again later")


def test_the_first_who_knows_a_token_says_whose_it_is(tmp_path):
    token, known = create_token(tmp_path / "tokens", "ada", ["x"])
    chain = AuthenticatorChain(
        {"file": TokenFile(tmp_path / "tokens"), "fixed": TokenAuthenticator({"other": "bob"})}
    )

    assert chain(token) == Identity("ada", frozenset({"x"}), credential=f"file/{known.id}")
    assert chain("other") == Identity("bob", credential="fixed/")
    assert chain("nobody's") is None


def test_one_that_is_not_available_does_not_keep_out_those_whom_others_know():
    chain = AuthenticatorChain({"down": unavailable, "fixed": TokenAuthenticator({"token": "bob"})})

    assert chain("token") == Identity("bob", credential="fixed/")
    with pytest.raises(Unauthenticated, match="try again later"):
        chain("another")


def test_each_is_asked_about_those_whom_it_has_admitted(tmp_path, monkeypatch):
    monkeypatch.setattr("sparkport.auth.watched.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("sparkport.auth.watched.SETTLE_SECONDS", 0.0)
    path = tmp_path / "tokens"
    token, _ = create_token(path, "ada")
    chain = AuthenticatorChain(
        {"file": TokenFile(path), "fixed": TokenAuthenticator({"other": "bob"})}
    )
    ada, bob = chain(token), chain("other")
    assert ada is not None
    assert bob is not None

    assert chain.recognises(ada)
    assert chain.recognises(bob)  # it cannot revoke anything, so its answer stands
    revoke_tokens(path, "ada")
    assert not chain.recognises(ada)
    assert chain.recognises(bob)
    without = AuthenticatorChain({"file": TokenFile(path)})
    assert not without.recognises(bob)
    assert not without.recognises(Identity("eve"))
