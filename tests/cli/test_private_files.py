"""Private files that others may read or change: what `serve` and `check` say about them."""

from __future__ import annotations

import logging
import os

import pytest

from sparkport.auth.token_file import create_token
from sparkport.cli.private_files import read_secret
from sparkport.errors import BadRequest


@pytest.fixture
def secret(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "secret"
    file.write_bytes(os.urandom(32))
    file.chmod(0o600)
    return file


def wrong(ran) -> dict[str, str]:
    return dict(line[2:].split(": ", 1) for line in ran.out.splitlines() if line.startswith("✗"))


def doubtful(ran) -> dict[str, str]:
    return dict(line[2:].split(": ", 1) for line in ran.out.splitlines() if line.startswith("!"))


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_secret_that_only_its_owner_reads_is_good(run, secret, mode):
    secret.chmod(mode)

    assert run("check", "--demo", "--secret-file", "secret").code == 0
    assert read_secret("secret") == secret.read_bytes()


@pytest.mark.parametrize(
    ("size", "mode", "said"),
    [
        (0, 0o600, "fill it with at least 32 random ones: head -c 32 /dev/urandom > secret"),
        (16, 0o600, "secret holds 16 bytes, which can be guessed"),
        (31, 0o600, "secret holds 31 bytes, which can be guessed"),
        (32, 0o640, "others than its owner can read secret: chmod 600 secret"),
        (32, 0o604, "others than its owner can read secret: chmod 600 secret"),
        (32, 0o660, "chmod 600 secret"),
        (32, 0o622, "others than its owner can change secret: chmod 600 secret"),
    ],
)
def test_a_secret_that_is_short_or_not_for_its_owner_alone_is_refused(
    run, refusal, secret, size, mode, said
):
    secret.write_bytes(os.urandom(size))
    secret.chmod(mode)

    assert said in refusal("serve", "--demo", "--secret-file", "secret", "--listen", "127.0.0.1:0")
    assert said in wrong(run("check", "--demo", "--secret-file", "secret"))["secret_file"]


def test_blanks_are_no_secret(secret):
    secret.write_bytes(b" " * 40 + b"\n")

    with pytest.raises(BadRequest, match="can be guessed"):
        read_secret(str(secret))


@pytest.mark.parametrize(
    ("owner", "mode", "good"), [(0, 0o440, True), (0, 0o444, False), (4321, 0o440, False)]
)
def test_roots_secret_may_be_read_by_the_group_of_a_server_that_is_not_root(
    monkeypatch, secret, owner, mode, good
):
    """As Kubernetes mounts it for a pod with an fsGroup."""
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(secret, owner, 0)
    secret.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)

    if good:
        assert len(read_secret(str(secret))) == 32
    else:
        with pytest.raises(BadRequest, match="others than its owner can read"):
            read_secret(str(secret))


def test_tokens_that_everybody_can_change_are_refused(run, refusal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    create_token(tmp_path / "tokens", "ada")
    (tmp_path / "tokens").chmod(0o602)

    said = "everybody on this machine can change tokens: chmod o-w tokens"
    assert said in refusal("serve", "--demo", "--tokens-file", "tokens", "--listen", "127.0.0.1:0")
    assert said in wrong(run("check", "--demo", "--tokens-file", "tokens"))["tokens"]


def test_tokens_that_everybody_can_read_are_warned_of(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    create_token(tmp_path / "tokens", "ada")
    (tmp_path / "tokens").chmod(0o644)

    ran = run("check", "--demo", "--tokens-file", "tokens")

    assert ran.code == 0
    assert "everybody on this machine can read tokens" in doubtful(ran)["tokens"]
    assert "chmod o-r tokens" in doubtful(ran)["tokens"]


def test_a_server_warns_of_them_too(tmp_path, caplog):
    from sparkport.cli.assembly import server_settings
    from sparkport.config import Config

    create_token(tmp_path / "tokens", "ada")
    (tmp_path / "tokens").chmod(0o644)

    with caplog.at_level(logging.WARNING):
        server_settings(Config(tokens_file=str(tmp_path / "tokens")))

    assert "can read" in caplog.text


def test_a_configuration_that_everybody_can_change_is_warned_of(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sparkport.toml").write_text("demo = true\n")
    (tmp_path / "sparkport.toml").chmod(0o666)

    ran = run("check", "--config", "sparkport.toml")

    assert ran.code == 0
    assert "everybody on this machine can change sparkport.toml" in doubtful(ran)["configuration"]
