"""The status page's server: what it shows to which viewer, and attacks that it withstands."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.server.catalogs import NUMBERS, Endless, ListedTable, ScriptedTable, catalog_of, numbers
from tests.server.raw_client import RawClient, path, ticket_message
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.server.http import listen

SOON = 30.0
T = path("s", "t")
CANCEL = {"X-Sparkport-Request": "cancel"}


def ask(
    page: str, target: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, Mapping[str, str], str]:
    connection = http.client.HTTPConnection(page.removeprefix("http://"), timeout=SOON)
    try:
        connection.request(method, target, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def status(page: str, token: str | None = None) -> dict[str, Any]:
    code, _, text = ask(page, "/status.json", bearer(token))
    assert code == 200, text
    shown: dict[str, Any] = json.loads(text)
    return shown


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


@pytest.fixture
def scan() -> Endless:
    return Endless()


@pytest.fixture
def server(start, scan) -> sp.Server:
    catalog = catalog_of(
        ScriptedTable("t", NUMBERS, scan), ListedTable("good", numbers()), name="cat"
    )
    started: sp.Server = start(catalog, sp.ServerSettings(http="127.0.0.1:0"))
    return started


@pytest.fixture
def page(server: sp.Server) -> str:
    assert server.status_page is not None
    return server.status_page


@pytest.fixture
def guarded(start, scan, tmp_path: Path) -> tuple[sp.Server, Path]:
    """A server with tokens, of which ada's is an administrator's."""
    authenticate = sp.TokenAuthenticator({"token-a": "ada", "token-b": "bob", "token-c": "cyd"})
    grants = [sp.Grant(("ada", "bob"), "cat", (sp.Privilege.READ,))]
    file = tmp_path / "audit.jsonl"
    settings = sp.ServerSettings(
        authenticate=authenticate,
        policy=sp.Policy(grants, admins=["ada"]),
        http="127.0.0.1:0",
        audit_file=file,
    )
    catalog = catalog_of(ScriptedTable("t", NUMBERS, scan), name="cat")
    return start(catalog, settings), file


def open_scan(client: RawClient, token: str | None = None) -> Any:
    headers = {key.lower(): value for key, value in bearer(token).items()}
    (endpoint,) = client.endpoints(T, headers=headers)
    call = client.open("DoGet", ticket_message(endpoint.ticket.ticket), headers, timeout=50)
    next(call)
    next(call)
    return call


def test_all_pages_are_there_and_forbid_what_they_do_not_need(page):
    for target, kind in (
        ("/", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
    ):
        code, headers, text = ask(page, target)
        assert (code, headers["Content-Type"].partition(";")[0]) == (200, kind)
        assert text
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Python" not in headers["Server"]
    assert "<script>" not in ask(page, "/")[2]
    for target in ("/nothing", "/../listen.py", "/listen.py", "/%2e%2e/listen.py", "/page.html/"):
        assert ask(page, target)[0] == 404
    assert ask(page, "/", method="HEAD")[2] == ""
    code, headers, text = ask(page, "/<script>", method="<b>")
    assert (code, text) == (501, "the request cannot be answered\n")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "Content-Security-Policy" in headers


def test_the_status_shows_what_is_running_and_what_went_wrong(server, page, connect):
    client = connect(server)
    call = open_scan(client)
    client.action_failure("endpoints", b"garbage", {"airport-trace-id": "trace-9"})

    shown = status(page)

    (running,) = shown["running"]
    assert (running["rpc"], running["object"], running["principal"]) == ("DoGet", "cat.s.t", None)
    assert running["rows_out"] >= 1000
    assert shown["catalogs"] == ["cat"]
    assert shown["version"] == sp.__version__
    assert shown["location"] == server.location
    assert shown["viewer"] == {"name": None, "signed_in": False, "sees_everything": True}
    assert [
        (error["code"], error["operation"], error["trace_id"]) for error in shown["errors"]
    ] == [("INVALID_ARGUMENT", "endpoints", "trace-9")]
    assert {work["operation"] for work in shown["ended"]} == {"endpoints"}
    server._watching.activity.sample()
    assert sum(point[1] for point in status(page)["throughput"]["points"]) >= 1000
    call.cancel()


def test_cancelling_needs_a_header_and_ends_the_call(server, page, connect, scan):
    call = open_scan(connect(server))
    number = status(page)["running"][0]["id"]

    assert ask(page, f"/cancel/{number}", method="POST")[0] == 403
    assert ask(page, f"/cancel/{number}", {"X-Sparkport-Request": "other"}, "POST")[0] == 403
    assert ask(page, f"/cancel/{number}", CANCEL)[0] == 404  # a GET changes nothing
    for target in (
        f"/cancel/{number}9",
        "/cancel/",
        "/cancel/-1",
        "/cancel/1e3",
        "/cancel/%31",
        "/cancel/" + "9" * 99,
    ):
        assert ask(page, target, CANCEL, "POST")[0] == 404
    assert not scan.closed.is_set()

    assert ask(page, f"/cancel/{number}", CANCEL, "POST")[0] == 200
    assert scan.closed.wait(SOON)
    with pytest.raises(Exception, match="CANCELLED"):
        list(call)
    assert eventually(lambda: status(page)["running"] == [])
    assert status(page)["errors"][0]["message"] == "it was cancelled by somebody at the status page"


def test_metrics_and_health_are_open_and_the_rest_is_not(guarded):
    page = guarded[0].status_page

    assert ask(page, "/healthz")[::2] == (200, "ok\n")
    code, headers, text = ask(page, "/metrics")
    assert (code, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "sparkport_rpcs_total" in text
    assert ask(page, "/")[0] == 200
    for token in (None, "", "wrong", "token-a-and-more"):
        code, headers, text = ask(page, "/status.json", bearer(token))
        assert (code, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert ask(page, "/cancel/1", {**CANCEL, **bearer(token)}, "POST")[0] == 401
    written = [json.loads(line) for line in guarded[1].read_text("utf-8").splitlines()]
    assert {(each["what"], each["outcome"]) for each in written} == {
        ("status", "UNAUTHENTICATED"),
        ("cancel", "UNAUTHENTICATED"),
    }
    assert "wrong" not in guarded[1].read_text("utf-8")
    assert "sparkport_logins_refused_total 6.0" in ask(page, "/metrics")[2]


def test_one_sees_and_cancels_what_is_ones_own_and_administrators_everything(
    guarded, connect, scan
):
    server, file = guarded
    page = server.status_page
    calls = [open_scan(connect(server), token) for token in ("token-a", "token-b")]
    of_ada, of_bob = server._watching.activity.running()
    connect(server).action_failure("endpoints", b"garbage", {"authorization": "Bearer token-a"})

    for_ada, for_bob, for_cyd = (status(page, token) for token in ("token-a", "token-b", "token-c"))

    assert [work["principal"] for work in for_ada["running"]] == ["ada", "bob"]
    assert [work["principal"] for work in for_bob["running"]] == ["bob"]
    assert (for_cyd["running"], for_cyd["ended"], for_cyd["errors"]) == ([], [], [])
    assert [len(each["errors"]) for each in (for_ada, for_bob)] == [1, 0]
    assert [each["catalogs"] for each in (for_ada, for_bob, for_cyd)] == [["cat"], ["cat"], []]
    assert [each["throughput"] is None for each in (for_ada, for_bob, for_cyd)] == [
        False,
        True,
        True,
    ]
    assert ask(page, f"/cancel/{of_ada.id}", {**CANCEL, **bearer("token-b")}, "POST")[0] == 404
    assert of_ada.cut_off == ""
    assert ask(page, f"/cancel/{of_bob.id}", {**CANCEL, **bearer("token-a")}, "POST")[0] == 200
    assert of_bob.cut_off == "it was cancelled by ada"
    calls[0].cancel()
    written = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [(each["what"], each["principal"], each["outcome"]) for each in written] == [
        ("cancel", "bob", "PERMISSION_DENIED"),
        ("cancel", "ada", "ok"),
    ]


def test_without_a_policy_nobody_is_an_administrator(start):
    settings = sp.ServerSettings(
        authenticate=sp.TokenAuthenticator({"token": "ada"}), http="127.0.0.1:0"
    )
    server = start(catalog_of(name="cat"), settings)

    assert status(server.status_page, "token")["viewer"] == {
        "name": "ada",
        "signed_in": True,
        "sees_everything": False,
    }


def test_an_authenticator_that_fails_lets_nobody_in(start):
    def broken(_token: str) -> str | None:
        raise RuntimeError("the directory is down")

    settings = sp.ServerSettings(authenticate=broken, http="127.0.0.1:0")
    page = start(catalog_of(), settings).status_page
    code, _, text = ask(page, "/status.json", bearer("token"))

    assert code == 500
    assert "directory" not in text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1", "", "10.0.0.1"]
)
def test_another_name_that_points_here_gets_nothing(page, host):
    for target in ("/status.json", "/", "/metrics"):
        assert ask(page, target, {"Host": host})[0] == 421
    assert ask(page, "/cancel/1", {"Host": host, **CANCEL}, "POST")[0] == 421


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:9", "127.1.2.3"]
)
def test_our_own_names_are_fine(page, host):
    assert ask(page, "/healthz", {"Host": host})[0] == 200


@pytest.mark.parametrize(
    "address",
    ["", "127.0.0.1", "host:port", ":8080", "127.0.0.1:99999", "user@127.0.0.1:1", "h:1/x"],
)
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(sp.BadRequest, match="HOST:PORT"):
        sp.Server(catalog_of(), "grpc://127.0.0.1:0", sp.ServerSettings(http=address))


def test_a_port_that_is_taken_is_an_error_that_names_it_and_the_other_one_is_given_back(page):
    address = page.removeprefix("http://")

    def is_so() -> bool:
        with socket.create_server(("127.0.0.1", 0)) as reserved:
            port = reserved.getsockname()[1]
        server = sp.Server(
            catalog_of(), f"grpc://127.0.0.1:{port}", sp.ServerSettings(http=address)
        )
        with pytest.raises(OSError, match="cannot listen on") as caught:
            server.start()
        with socket.socket() as probe:
            free = probe.connect_ex(("127.0.0.1", port)) != 0
        return f"cannot listen on {address} for the status page" in str(caught.value) and free

    assert any(is_so() for _ in range(3))  # another process may be given the port meanwhile


def test_ipv6_is_served_too():
    with sp.Server(catalog_of(), "grpc://127.0.0.1:0", sp.ServerSettings(http="[::1]:0")) as server:
        assert server.status_page is not None
        assert server.status_page.startswith("http://[::1]:")
        port = int(server.status_page.rpartition(":")[2])
        connection = http.client.HTTPConnection("::1", port, timeout=SOON)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"ok\n"
        connection.close()


def test_clients_that_say_nothing_do_not_keep_others_out_for_ever(start, monkeypatch):
    monkeypatch.setattr(listen, "_MOST_CONNECTIONS", 3)
    monkeypatch.setattr(listen._Request, "timeout", 0.3)
    page = start(catalog_of(), sp.ServerSettings(http="127.0.0.1:0")).status_page
    host, _, port = page.removeprefix("http://").rpartition(":")
    idle = [socket.create_connection((host, int(port)), timeout=SOON) for _ in range(6)]

    def answers() -> bool:
        try:
            return ask(page, "/healthz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    assert eventually(answers)
    for each in idle:
        each.close()
