"""`sparkport serve`, run as users run it."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.server.catalogs import catalog_of
from tests.server.raw_client import RawClient, path

from sparkport.cli import main
from sparkport.server import Server

COMMAND = [str(Path(sys.executable).with_name("sparkport"))]
ANY_PORT = ["--location", "grpc://127.0.0.1:0"]

CATALOG = """
import pyarrow as pa
from sparkport import CatalogBuilder
catalog = CatalogBuilder("cat")
catalog.schema("s").table("t", pa.table({"id": [1, 2, 3]}))
def factory():
    other = CatalogBuilder("other")
    other.schema("s").table("t", pa.table({"id": [1]}))
    return other
nothing = 42
"""


@contextmanager
def running(
    *arguments: str, cwd: Path | None = None, command: list[str] = COMMAND
) -> Iterator[tuple[str, RawClient]]:
    """The greeting of a server that runs, and a client of it; it must stop with exit code 0."""
    process = subprocess.Popen(
        [*command, "serve", *ANY_PORT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
    )
    try:
        assert process.stdout is not None
        greeting = ""
        while "Ctrl-C" not in greeting:
            line = process.stdout.readline()
            assert line, "it ended before it was ready"
            greeting += line
        location = re.search(r"grpc://[\d.]+:\d+", greeting)
        assert location is not None
        with RawClient(location[0]) as client:
            yield greeting, client
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.fixture(autouse=True)
def _leaves_no_trace(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("shop", "broken"):
        sys.modules.pop(name, None)


def refusal(capfd, *arguments: str) -> str:
    """Return what the command says when it cannot serve: a single line, with exit code 2.

    gRPC's own log is not ours.
    """
    assert main(["serve", *arguments]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if not re.match(r"[EWI]\d{4} ", line)]
    (line,) = lines
    assert line.startswith("sparkport: ")
    return line.removeprefix("sparkport: ")


@pytest.mark.parametrize(
    "command", [COMMAND, [sys.executable, "-m", "sparkport"]], ids=["sparkport", "python -m"]
)
def test_the_demo_says_how_to_attach_it_and_can_be_read(command):
    with running("--demo", command=command) as (greeting, client):
        attach = re.search(
            r"ATTACH 'demo' \(TYPE airport, LOCATION '(grpc://127\.0\.0\.1:\d+)'\);", greeting
        )

        assert attach is not None
        assert greeting.count("\n") == 1
        assert list(client.list_schemas("demo")) == ["shop"]
        assert client.scan(path("demo", "shop", "customers"), [0]).table.num_rows == 5


def test_a_catalog_of_a_file_is_served(tmp_path):
    (tmp_path / "shop.py").write_text(CATALOG)

    with running("shop.py:catalog", "shop.py:factory", cwd=tmp_path) as (greeting, client):
        assert "ATTACH 'cat'" in greeting
        assert "ATTACH 'other'" in greeting
        assert client.scan(path("cat", "s", "t"), [0]).table.num_rows == 3
        assert client.scan(path("other", "s", "t"), [0]).table.num_rows == 1


def test_the_demo_is_served_beside_a_catalog_of_ones_own(tmp_path):
    (tmp_path / "shop.py").write_text(CATALOG)

    with running("--demo", "shop.py:catalog", cwd=tmp_path) as (greeting, client):
        assert greeting.startswith("Sparkport serves cat, demo on grpc://127.0.0.1:")
        assert list(client.list_schemas("demo")) == ["shop"]
        assert list(client.list_schemas("cat")) == ["s"]


def test_a_catalog_of_a_module_in_the_current_folder_is_served(tmp_path):
    (tmp_path / "shop.py").write_text(CATALOG)

    with running("shop:catalog", cwd=tmp_path) as (_, client):
        assert list(client.list_schemas("cat")) == ["s"]


def test_without_a_catalog_it_says_what_to_name(capfd):
    assert "--demo" in refusal(capfd)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop", "module:name"),
        (":catalog", "module:name"),
        ("shop.py:", "module:name"),
        ("no_such_module:catalog", "no_such_module cannot be imported"),
        ("no_such_file.py:catalog", "no_such_file.py cannot be imported"),
        ("shop.py:nothing", "no CatalogBuilder or Catalog called 'nothing'"),
        ("shop.py:missing", "no CatalogBuilder or Catalog called 'missing'"),
        ("broken.py:catalog", "broken.py cannot be imported"),
    ],
)
def test_a_catalog_that_cannot_be_had_is_named(capfd, tmp_path, monkeypatch, target, said):
    (tmp_path / "shop.py").write_text(CATALOG)
    (tmp_path / "broken.py").write_text("this is not Python")
    monkeypatch.chdir(tmp_path)

    assert said in refusal(capfd, *ANY_PORT, target)


def test_a_port_in_use_is_said_in_one_sentence(capfd):
    with Server(catalog_of(), "grpc://127.0.0.1:0") as server:
        assert "in use" in refusal(capfd, "--demo", "--location", server.location)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--location", "http://x"], "grpc://host:port"),
        (["--location", "grpc+tls://127.0.0.1:0"], "certificate"),
        (["--log-level", "loud"], "log_level must be debug, info, warning or error"),
        (["--log-format", "xml"], "log_format must be text or json"),
        (["--max-calls", "many"], "max_calls must be a whole number"),
        (["--listen", "0.0.0.0:0"], "say --insecure --anonymous"),
        (["--listen", "0.0.0.0:0", "--anonymous"], "say --insecure"),
        (["--tokens-file", "no-such-tokens"], "no-such-tokens cannot be read"),
        (["--authenticator", "no_such_module:who"], "no_such_module cannot be imported"),
        (["--jwks-url", "https://127.0.0.1:1/"], "jwt_issuer and jwt_audience"),
        (
            ["--jwks-url", "http://id.example.com/", "--jwt-issuer", "i", "--jwt-audience", "a"],
            "https://",
        ),
        (["--http", "nowhere"], "HOST:PORT"),
        (["--audit-file", "/no/such/folder/audit"], "cannot be written"),
        (["--config", "no-such.toml"], "no-such.toml cannot be read"),
        (["--secret-file", "no-such-secret"], "no-such-secret cannot be read"),
        (["--tls-certificate", "no-such.pem"], "belong together"),
        (
            ["--tls-certificate", "no-such.pem", "--tls-key", "no-such.key"],
            "no-such.pem cannot be read",
        ),
        (["--max-calls", "0"], "max_calls must be at least 1"),
        (["--listen", "nowhere"], "grpc://host:port"),
        (
            ["--listen", "127.0.0.1:0", "--location", "grpc://127.0.0.1:0"],
            "takes the place of location",
        ),
        (["--master", "local[2]"], "with --warehouse"),
        (["--spark-conf", "spark.x=1"], "with --warehouse"),
        (["--spark-conf", "spark.x"], "spark_conf must be of the form KEY=VALUE"),
        (["--spark-ui"], "with --warehouse"),
        (["--direct"], "with --warehouse"),
        (["--lake-endpoints", "4", "--no-lake-statistics"], "for --lake-endpoints, --lake-stat"),
        (["--warehouse", "lake", "--memory-partitions", "9"], "for --memory-partitions: --demo"),
        (["--warehouse", "lake", "--location", "http://x"], "grpc://host:port"),
        (["--warehouse", __file__], "is not a folder"),
        (["--warehouse", "/proc/lake"], "cannot be written to"),
    ],
)
def test_a_setting_that_cannot_be_is_named(capfd, arguments, said):
    assert said in refusal(capfd, "--demo", *arguments)


def test_two_catalogs_of_one_name_are_refused(capfd, tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(CATALOG)
    monkeypatch.chdir(tmp_path)

    assert "'cat'" in refusal(capfd, *ANY_PORT, "shop.py:catalog", "shop.py:catalog")


def test_settings_of_the_environment_reach_the_server(tmp_path):
    with Server(catalog_of(), "grpc://127.0.0.1:0") as server:
        environment = {**os.environ, "SPARKPORT_LOCATION": server.location}
        result = subprocess.run(
            [*COMMAND, "serve", "--demo"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    assert result.returncode == 2
    assert server.location.removeprefix("grpc://") in result.stderr


def test_without_java_a_lake_says_how_to_install_it(tmp_path):
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    command = [*COMMAND, "serve", *ANY_PORT, "--warehouse", "lake", "--log-level", "error"]
    result = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert result.returncode == 2
    assert result.stderr.startswith(
        "sparkport: Spark needs Java, which was not found: install Java 17 or newer"
    )
    assert result.stderr.count("\n") == 1


def test_arguments_that_make_no_sense_end_with_exit_code_2(capfd):
    for arguments in ([], ["nonsense"], ["serve", "--nonsense"], ["token"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2


def test_a_configuration_may_come_out_of_a_pipe(tmp_path):
    """A pipe is read once, and cannot be read again when it changes."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "shop.py").write_text(CATALOG)
    rules = '[[grants]]\nto="*"\non="cat"\nmay="read"\n'
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(rules,), daemon=True)
    writer.start()

    with running("shop.py:catalog", "--config", "pipe", cwd=tmp_path) as (greeting, _client):
        assert "cat" in greeting
    writer.join(30)
