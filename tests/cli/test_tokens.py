"""`sparkport token`, as an administrator uses it."""

from __future__ import annotations

import json
import re
import stat
from datetime import datetime, timedelta, timezone

import pytest

from sparkport.auth import TokenFile
from sparkport.catalog import Identity


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARKPORT_TOKENS_FILE", str(tmp_path / "tokens"))
    return tmp_path / "tokens"


def test_a_token_is_printed_alone_and_what_to_do_with_it_beside_it(run, file):
    made = run(
        "token",
        "create",
        "ada",
        "--group",
        "analysts",
        "--attribute",
        "region=EU",
        "--attribute",
        "region=US",
    )

    assert made.code == 0
    token = made.out.removesuffix("\n")
    assert re.fullmatch(r"spk_[\w-]{43}", token)
    assert (
        "CREATE PERSISTENT SECRET sparkport (TYPE airport, auth_token '<token>', SCOPE 'grpc://127.0.0.1:50051');"
        in made.err
    )
    assert token not in made.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    identity = TokenFile(file)(token)
    assert identity is not None
    assert identity == Identity(
        "ada", frozenset({"analysts"}), {"region": ("EU", "US")}, None, identity.credential
    )


def test_tokens_are_listed_and_revoked_by_id_or_name(run, file):
    for name in ("ada", "bob", "bob"):
        run("token", "create", name, "--expires", "90d")
    listed = json.loads(run("token", "list", "--json").out)
    assert [each["principal"] for each in listed] == ["ada", "bob", "bob"]
    assert not any("sha256" in each for each in listed)
    expires = datetime.fromisoformat(listed[0]["expires"]) - datetime.now(timezone.utc)
    assert timedelta(days=89, hours=23) < expires <= timedelta(days=90)

    assert run("token", "revoke", listed[1]["id"]).out == f"revoked {listed[1]['id']} of bob\n"
    shown = run("token", "list").out.splitlines()
    assert [line.split()[:2] for line in shown] == [
        ["ID", "PRINCIPAL"],
        *([e["id"], e["principal"]] for e in listed[::2]),
    ]
    assert run("token", "revoke", "bob").code == 0
    assert len(json.loads(run("token", "list", "--json").out)) == 1


def test_a_list_without_tokens_says_how_to_make_one(run, file):
    file.write_text("")

    assert "sparkport token create NAME" in run("token", "list").err


def test_the_file_may_be_named_in_the_configuration(run, tmp_path):
    config = tmp_path / "sparkport.toml"
    config.write_text(f'tokens_file = "{tmp_path}/there"\nlocation = "grpc://data:1"\ndemo = true')

    made = run("token", "create", "ada", "--config", str(config))

    assert made.code == 0
    assert "SCOPE 'grpc://data:1'" in made.err
    assert (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "group:x"], "cannot be the name of a principal"),
        (["create", "ada", "--expires", "soon"], "--expires must be like 90d, 12h or 2030-12-31"),
        (["create", "ada", "--expires", "2020-01-01"], "--expires must be in the future"),
        (["create", "ada", "--attribute", "region"], "an attribute must be of the form NAME=VALUE"),
        (["create", "ada", "--attribute", "a b=c"], "an attribute must be of the form NAME=VALUE"),
        (["create", "ada", "--attribute", "groups=admins"], "give the attribute another name"),
        (["revoke", "eve"], "has no token of 'eve'"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(refusal, file, arguments, said):
    file.write_text("")

    assert said in refusal("token", *arguments)
    assert file.read_text() == ""


def test_without_a_file_it_says_how_to_name_one(refusal, monkeypatch):
    monkeypatch.delenv("SPARKPORT_TOKENS_FILE", raising=False)

    assert "--tokens-file" in refusal("token", "list")
