"""`sparkport serve` with all parts of a company's configuration at once."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.auth.provider import AUDIENCE, ISSUER, RSA, Provider, public, token
from tests.server.certificates import Authority

from sparkport.builder import CatalogBuilder
from sparkport.catalog import Context
from sparkport.cli.assembly import catalogs
from sparkport.config import Config
from sparkport.memory import MemorySettings, MemoryTable
from sparkport.testing import DuckDBClient, ServerError

COMMAND = str(Path(sys.executable).with_name("sparkport"))
CATALOG = """
import pyarrow as pa
import sparkport.auth.jwks
from sparkport import CatalogBuilder
sparkport.auth.jwks._FETCH_SECONDS = 60.0  # the provider of this test may be slow
catalog = CatalogBuilder("shop")
rows = pa.table({"id": [1, 2, 3], "region": ["EU", "US", "EU"], "email": ["a@x", "b@x", "c@x"]})
catalog.schema("sales").table("orders", rows)
catalog.schema("secret").table("plans", pa.table({"id": [1]}))
def who(token):
    return "robot" if token == "beep" else None
"""
CONFIG = """
location = "grpc+tls://localhost:0"
tls_certificate = "tls.crt"
tls_key = "tls.key"
tokens_file = "tokens"
jwks_url = "{jwks_url}"
jwt_issuer = "{issuer}"
jwt_audience = "{audience}"
jwt_attributes = ["region"]
authenticator = "company.py:who"
http = "127.0.0.1:0"
log_format = "json"
audit_file = "audit.jsonl"
stop_seconds = 5
max_scans_per_principal = 7
secret_file = "secret"
admins = "group:operators"

[[grants]]
to = "group:analysts"
on = "shop.sales"
may = "read"

[[grants]]
to = "robot"
on = "shop"
may = ["read", "write"]

[[row_filters]]
on = "shop.sales.orders"
rows = "region = $region"
but = "robot"

[[masks]]
on = "shop.sales.orders"
column = "email"
value = "'***'"
but = "robot"
"""


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Provider()
    made.keys = [public(RSA, "one")]
    yield made
    made.close()


def test_everything_that_a_configuration_says_is_so(run, tmp_path, monkeypatch, provider):
    authority = Authority()
    authority.sign().write(tmp_path)
    (tmp_path / "company.py").write_text(CATALOG)
    (tmp_path / "secret").write_bytes(b"s" * 32)
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "sparkport.toml").write_text(
        CONFIG.format(jwks_url=provider.url, issuer=ISSUER, audience=AUDIENCE)
    )
    monkeypatch.chdir(tmp_path)
    settings = ("--config", "sparkport.toml")
    ada = run(
        "token", "create", "ada", "--group", "analysts", "--attribute", "region=EU", *settings
    ).out.strip()
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen(
        [COMMAND, "serve", "company.py:catalog", *settings],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        assert process.stdout is not None
        greeting = process.stdout.readline()
        location = re.search(r"grpc\+tls://localhost:\d+", greeting)
        assert location is not None, greeting + (tmp_path / "log").read_text()

        def client(token: str | None) -> DuckDBClient:
            return DuckDBClient(
                location[0],
                "shop",
                attach_token=token,
                timeout=20,
                tls_root_certs=authority.certificate,
            )

        expect_permissions(client, ada)
        expect_status_page(tmp_path / "log")
        (tmp_path / "ca.crt").write_bytes(authority.certificate)
        listed = run("ls", location[0], "--ca", "ca.crt", "--token", ada)
        assert listed.out.splitlines()[:2] == ["shop", "└─ sales"], listed.err
        assert run("token", "revoke", "ada", *settings).code == 0
        time.sleep(1.1)
        with client(ada) as refused, pytest.raises(ServerError, match="not known here"):
            refused.scan("sales", "orders")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate(timeout=30)
        log.close()
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert any(entry.get("principal") == "robot" for entry in audit)
    assert ada not in (tmp_path / "log").read_text() + (tmp_path / "audit.jsonl").read_text()


def expect_permissions(client: Callable[[str | None], DuckDBClient], ada: str) -> None:
    seen = [{"id": 1, "region": "EU", "email": "***"}, {"id": 3, "region": "EU", "email": "***"}]
    with client(ada) as of_file:
        assert list(of_file.schemas()) == ["sales"]
        assert of_file.scan("sales", "orders").to_pylist() == seen
    with client(token(sub="eve", groups=["analysts"], region="US")) as of_provider:
        assert of_provider.scan("sales", "orders", ["id"]).to_pylist() == [{"id": 2}]
    with client("beep") as robot:
        assert sorted(robot.schemas()) == ["sales", "secret"]
        assert (
            robot.insert(
                "sales", "orders", pa.table({"id": [4], "region": ["EU"], "email": ["d@x"]})
            ).total
            == 1
        )
        assert robot.count("sales", "orders") == 4
    with client(token(sub="mallory")) as stranger, pytest.raises(ServerError):
        stranger.scan("sales", "orders")
    for wrong in (None, "boop", token(aud="another")):
        with client(wrong) as nobody, pytest.raises(ServerError) as caught:
            nobody.scan("sales", "orders")
        assert caught.value.code == "UNAUTHENTICATED"


def expect_status_page(log: Path) -> None:
    entries = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    page = next(
        found
        for entry in entries
        if (found := re.search(r"http://127\.0\.0\.1:\d+", entry["message"]))
    )
    with urllib.request.urlopen(f"{page[0]}/healthz", timeout=60) as answer:
        assert answer.status == 200


def test_settings_of_memory_reach_the_demo():
    settings = MemorySettings(max_versions=7, statistics=False)

    (demo,) = catalogs(Config(demo=True, memory=settings), [])

    assert isinstance(demo, CatalogBuilder)
    orders = next(
        table
        for schema in demo.build().schemas(Context())
        for table in schema.tables(Context())
        if table.name == "orders"
    )
    assert isinstance(orders, MemoryTable)
    assert orders.ledger.settings == settings
    assert not orders.offers_statistics
