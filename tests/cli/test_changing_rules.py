"""Rules and admins are read again when their file changes; a broken file changes nothing."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

import sparkport as sp
from sparkport.auth.token_file import create_token
from sparkport.cli.assembly import server_settings
from sparkport.cli.commands import parser
from sparkport.cli.flags import chosen
from sparkport.cli.rule_file import RuleFile
from sparkport.testing import DuckDBClient, ServerError

COMMAND = str(Path(sys.executable).with_name("sparkport"))
SOON = 30.0
NOBODY = flight.FlightCallOptions(timeout=SOON)
BASE = 'location = "grpc://127.0.0.1:0"\nhttp = "127.0.0.1:0"\ntokens_file = "{tokens}"\n'
READ = '[[grants]]\nto = "ada"\non = "shop.sales"\nmay = "read"\n'
WRITE = READ.replace('"read"', '["read", "write"]')
LIST = READ.replace('"read"', '"list"')
OTHER = READ.replace("ada", "bob")
MASK = '[[masks]]\non = "shop.**.orders"\ncolumn = "email"\nvalue = "\'***\'"\n'
FILTER = '[[row_filters]]\non = "shop.**.orders"\nrows = "id > 1"\n'
ORDERS = pa.table({"id": [1, 2, 3], "email": ["a@x", "b@x", "c@x"]})


class Shop:
    """A server whose configuration the test writes."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "sparkport.toml"
        self._base = BASE.format(tokens=folder / "tokens")
        self._times = itertools.count(1_000_000_000)
        self.token, _ = create_token(folder / "tokens", "ada")

    def rules(self, *rules: str, settings: str = "") -> None:
        """Write the file, with a new modification time."""
        self._file.write_text(self._base + settings + "\n".join(rules))
        now = next(self._times)
        os.utime(self._file, (now, now))

    @contextmanager
    def serving(self, *flags: str) -> Iterator[sp.Server]:
        options = parser().parse_args(["serve", "--config", str(self._file), *flags])
        config = chosen(options)
        rules = RuleFile(self._file, config, lambda: chosen(options))
        catalog = sp.MemoryCatalog("shop")
        for name in ("sales", "vault"):
            catalog.add_schema(name).add_table(sp.MemoryTable("orders", ORDERS))
        with sp.Server(catalog, config.location, server_settings(config, rules)) as server:
            yield server

    def client(self, server: sp.Server) -> DuckDBClient:
        """A client like DuckDB attached with a token: half of its calls send only handles."""
        return DuckDBClient(server.location, "shop", attach_token=self.token, timeout=SOON)

    @contextmanager
    def planned(self, server: sp.Server) -> Iterator[Callable[[], pa.Table]]:
        """Read by a ticket that was made before."""
        shown = flight.FlightCallOptions(
            timeout=SOON, headers=[(b"authorization", f"Bearer {self.token}".encode())]
        )
        with flight.connect(server.location) as client:
            info = client.get_flight_info(
                flight.FlightDescriptor.for_path("sales", "orders"), shown
            )
            yield (
                lambda: (
                    client.do_get(info.endpoints[0].ticket, NOBODY)
                    .read_all()
                    .select(["id", "email"])
                )
            )


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The files are looked at with each call, so that no test has to wait."""
    monkeypatch.setattr("sparkport.auth.watched.LOOK_SECONDS", 0.0)
    made = Shop(tmp_path)
    made.rules(READ)
    return made


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


def page(server: sp.Server, target: str, token: str) -> str:
    assert server.status_page is not None
    request = urllib.request.Request(
        server.status_page + target, headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=SOON) as answer:
        text: str = answer.read().decode()
        return text


def outdated(server: sp.Server, token: str) -> list[Any]:
    metric = re.search(
        r"^sparkport_rules_outdated (\S+)$", page(server, "/metrics", token), re.MULTILINE
    )
    assert metric is not None
    return [float(metric[1]), json.loads(page(server, "/status.json", token))["rules_outdated"]]


@pytest.mark.parametrize(
    ("after", "code"),
    [((OTHER,), "NOT_FOUND"), ((LIST,), "PERMISSION_DENIED")],
    ids=["taken away", "list only"],
)
def test_what_is_taken_away_is_refused_by_the_next_call(shop, after, code):
    """Also to callers with earlier handles, and for scans that were planned before."""
    with shop.serving() as server, shop.client(server) as client, shop.planned(server) as planned:
        assert ids(client.scan("sales", "orders")) == [1, 2, 3]
        assert ids(planned()) == [1, 2, 3]

        shop.rules(*after)

        with pytest.raises(
            (flight.FlightError, OSError, KeyError), match=r"not found|no read permission"
        ):
            planned()
        with pytest.raises(ServerError) as caught:
            client.scan("sales", "orders")
        assert caught.value.code == code


def test_what_is_granted_is_there_at_once(shop):
    with shop.serving() as server, shop.client(server) as client:
        assert list(client.schemas()) == ["sales"]
        with pytest.raises(ServerError, match="no write permission"):
            client.insert("sales", "orders", ORDERS)

        shop.rules(WRITE, READ.replace("shop.sales", "shop.vault"))

        assert client.insert("sales", "orders", ORDERS).total == 3
        with shop.client(server) as again:
            assert list(again.schemas()) == ["sales", "vault"]


def test_filters_and_masks_hold_for_what_was_planned_before_them(shop):
    with shop.serving() as server, shop.client(server) as client, shop.planned(server) as planned:
        assert planned().equals(ORDERS)
        before = client.scan("sales", "orders")

        shop.rules(READ, MASK, FILTER)

        assert planned().to_pylist() == [{"id": 2, "email": "***"}, {"id": 3, "email": "***"}]
        assert client.scan("sales", "orders").to_pylist() == planned().to_pylist()
        shop.rules(READ)
        assert client.scan("sales", "orders").equals(before)


def test_prepared_statements_are_bound_again(shop):
    """Their plans hold statistics of rows and values that are no longer shown."""
    with shop.serving() as server:
        (registered,) = server._service.registry.all()

        def version() -> int:
            with shop.client(server) as client:
                client.schemas()
            return registered.version(sp.Context(catalog_name="shop")).number

        first = version()
        assert version() == first
        shop.rules(READ, MASK)
        second = version()
        assert second > first
        shop.rules(READ, MASK, "# other rules than before? no\n")
        assert version() == second


@pytest.mark.parametrize(
    "broken",
    [
        "[[grants]]\nto = ",
        READ.replace("read", "raed"),
        FILTER.replace("id > 1", "id >"),
        "nonsense = 1\n",
        None,
        "",
    ],
    ids=["no TOML", "no privilege", "no condition", "no setting", "missing", "without grants"],
)
def test_a_broken_file_keeps_the_old_rules_and_says_so_once(shop, tmp_path, caplog, broken):
    shop.rules(READ, FILTER, settings='admins = "ada"\n')
    with (
        shop.serving() as server,
        shop.client(server) as client,
        caplog.at_level(logging.INFO, "sparkport"),
    ):
        assert outdated(server, shop.token) == [0.0, False]
        if broken is None:
            (tmp_path / "sparkport.toml").unlink()
        else:
            shop.rules(broken)

        for _ in range(3):
            assert ids(client.scan("sales", "orders")) == [2, 3]
        assert outdated(server, shop.token) == [1.0, True]
        (said,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
        assert said.getMessage().startswith("the rules stay as they were: ")
        assert "sparkport.toml" in said.getMessage()

        shop.rules(READ, settings='admins = "ada"\n')
        assert ids(client.scan("sales", "orders")) == [1, 2, 3]
        assert outdated(server, shop.token) == [0.0, False]
        assert any(
            each.getMessage().startswith("the rules were read again from ")
            for each in caplog.records
        )


def test_a_server_without_rules_takes_the_first_ones(shop):
    shop.rules()
    with shop.serving() as server, shop.client(server) as client:
        assert ids(client.scan("vault", "orders")) == [1, 2, 3]

        shop.rules(READ)

        with pytest.raises(ServerError) as caught:
            client.scan("vault", "orders")
        assert caught.value.code == "NOT_FOUND"


def test_administrators_are_rules_too_and_flags_win(shop):
    with shop.serving() as server, shop.serving("--admins", "bob") as by_flag:
        assert not json.loads(page(server, "/status.json", shop.token))["viewer"]["sees_everything"]

        shop.rules(READ, settings='admins = "ada"\n')

        assert json.loads(page(server, "/status.json", shop.token))["viewer"]["sees_everything"]
        assert not json.loads(page(by_flag, "/status.json", shop.token))["viewer"][
            "sees_everything"
        ]


def test_other_settings_that_changed_are_named(shop, caplog):
    with (
        shop.serving() as server,
        shop.client(server) as client,
        caplog.at_level(logging.INFO, "sparkport"),
    ):
        shop.rules(OTHER, settings='max_calls = 1\nspark_conf = { "spark.password" = "hidden" }\n')

        with pytest.raises(ServerError):
            client.scan("sales", "orders")
        (said,) = [each.getMessage() for each in caplog.records if "restart" in each.getMessage()]
        assert said.endswith(
            "sparkport.toml has other settings now that take a restart: spark_conf, max_calls"
        )
        assert "hidden" not in caplog.text


def test_new_rules_are_doubted_like_those_of_the_start(shop, caplog):
    with (
        shop.serving() as server,
        shop.client(server) as client,
        caplog.at_level(logging.WARNING, "sparkport"),
    ):
        shop.rules(READ, MASK.replace(".**.", ".*."))
        client.scan("sales", "orders")

    assert any(
        "does not cover schemas within schemas" in each.getMessage() for each in caplog.records
    )


def test_rules_from_python_change_when_their_function_says_so():
    grants = {
        "ada": sp.Policy([sp.Grant(("ada",), "shop", (sp.Privilege.READ,))]),
        "nobody": sp.Policy([]),
    }
    holds = ["ada"]
    catalog = sp.MemoryCatalog("shop")
    catalog.add_schema("sales").add_table(sp.MemoryTable("orders", ORDERS))
    settings = sp.ServerSettings(
        authenticate=sp.TokenAuthenticator({"token": "ada"}), policy=lambda: grants[holds[0]]
    )
    with (
        sp.Server(catalog, "grpc://127.0.0.1:0", settings) as server,
        DuckDBClient(server.location, "shop", token="token", timeout=SOON) as client,
    ):
        assert ids(client.scan("sales", "orders")) == [1, 2, 3]
        holds[0] = "nobody"
        with pytest.raises(ServerError) as caught:
            client.scan("sales", "orders")
        assert caught.value.code == "NOT_FOUND"


CATALOG = """
import pyarrow as pa
from sparkport import CatalogBuilder
catalog = CatalogBuilder("shop")
catalog.schema("sales").table("orders", pa.table({"id": [1, 2, 3], "email": ["a@x", "b@x", "c@x"]}))
"""


def test_a_server_that_runs_takes_notice(tmp_path, monkeypatch):
    """By the command line, with its real intervals."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "company.py").write_text(CATALOG)
    (tmp_path / "sparkport.toml").write_text(
        BASE.format(tokens="tokens") + READ + MASK.replace(".**.", ".*.")
    )
    token, _ = create_token(tmp_path / "tokens", "ada")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [COMMAND, "serve", "company.py:catalog", "--config", "sparkport.toml"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            location = re.search(r"grpc://127\.0\.0\.1:\d+", process.stdout.readline())
            assert location is not None, (tmp_path / "log").read_text()
            assert (
                "masks 1: shop.*.orders does not cover schemas within schemas"
                in (tmp_path / "log").read_text()
            )
            with DuckDBClient(location[0], "shop", attach_token=token, timeout=SOON) as client:
                assert client.scan("sales", "orders")["email"].to_pylist() == ["***"] * 3

                (tmp_path / "sparkport.toml").write_text(BASE.format(tokens="tokens") + LIST)
                until(lambda: refused(client))

                (tmp_path / "sparkport.toml").write_text("[[grants]")
                until(
                    lambda: "the rules stay as they were" in (tmp_path / "log").read_text(),
                    lambda: refused(client),
                )
                assert refused(client)
            process.send_signal(signal.SIGTERM)
            assert process.wait(SOON) == 0
        finally:
            process.kill()
            process.communicate(timeout=SOON)


def refused(client: DuckDBClient) -> bool:
    try:
        client.scan("sales", "orders")
    except ServerError as error:
        return error.code == "PERMISSION_DENIED"
    return False


def until(condition: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        meanwhile()
        time.sleep(0.05)
