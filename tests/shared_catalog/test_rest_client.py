"""Requests to a REST catalog, without a lake."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.parts.rest_door import RestDoor
from tests.shared_catalog.rest_handles import CREDENTIAL

from sparkport.errors import BadRequest, CatalogFault, Unsupported
from sparkport.spark.lake.rest_client import RestClient, RestFault

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]


class TestRestClient:
    @pytest.mark.parametrize(
        "options",
        [{"credential": "sparkport:wr0ng"}, {"credential": "wr0ng"}, {"token": "wr0ng"}],
    )
    def test_wrong_secrets_are_said_to_be_wrong_and_not_shown(
        self, door: RestDoor, options: dict[str, str]
    ) -> None:
        client = RestClient("l", {"uri": door.uri, **options})
        with pytest.raises(CatalogFault, match=r"lake l.*check credential") as caught:
            client.call("GET", "namespaces")
        assert "wr0ng" not in caught.value.message
        assert "secret" not in caught.value.message

    def test_a_bearer_token_is_enough(self, door: RestDoor) -> None:
        _, token = door.token({"client_id": "sparkport", "client_secret": "a:secret"})
        client = RestClient("l", {"uri": f"{door.uri}/", "token": token["access_token"]})
        assert client.call("GET", "namespaces").status == 200

    def test_headers_go_with_each_request(self, door: RestDoor) -> None:
        options = {"uri": door.uri, "credential": CREDENTIAL, "header.X-Team": "lake"}
        RestClient("l", options).call("GET", "namespaces")
        assert door.headers[-1]["X-Team"] == "lake"
        assert door.headers[-1]["X-Iceberg-Access-Delegation"] == "vended-credentials"

    def test_the_servers_overrides_win_and_its_defaults_do_not(self, door: RestDoor) -> None:
        door.defaults |= {"a": "theirs", "b": "theirs"}
        door.overrides |= {"c": "theirs"}
        options = {"uri": door.uri, "credential": CREDENTIAL, "a": "ours", "c": "ours"}
        settings = RestClient("l", options).settings
        assert [settings[name] for name in "abc"] == ["ours", "theirs", "theirs"]

    def test_a_password_is_an_authentication(self, door: RestDoor) -> None:
        basic = {"rest.auth.type": "basic", "rest.auth.basic.username": "me"}
        with pytest.raises(BadRequest, match=r"rest\.auth\.basic\.password"):
            RestClient("l", {"uri": door.uri, **basic})
        client = RestClient("l", {"uri": door.uri, **basic, "rest.auth.basic.password": "s3cret"})
        with pytest.raises(CatalogFault):
            client.call("GET", "namespaces")
        assert door.headers[-1]["Authorization"] == "Basic bWU6czNjcmV0"

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"uri": "somewhere"}, "set catalog_uri"),
            ({"uri": "http://x", "rest.auth.type": "oauth2"}, "set token, or credential"),
            ({"uri": "http://x", "rest.sigv4-enabled": "true"}, "set catalog to spark"),
        ],
    )
    def test_wrong_options_are_refused(self, options: dict[str, str], says: str) -> None:
        with pytest.raises((BadRequest, Unsupported), match=says):
            RestClient("l", options)

    def test_nobody_at_the_address_is_said(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        client = RestClient("l", {"uri": f"http://127.0.0.1:{port}"})
        with pytest.raises(RestFault, match="cannot be reached: check catalog_uri") as caught:
            client.call("POST", "namespaces")
        assert caught.value.is_refusal

    def test_something_else_at_the_address_is_said(self) -> None:
        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"<html>")

            def log_message(self, format: str, *args: object) -> None:
                """Keep quiet."""

        with HTTPServer(("127.0.0.1", 0), Page) as page:
            thread = threading.Thread(target=page.handle_request)
            thread.start()
            client = RestClient("l", {"uri": f"http://127.0.0.1:{page.server_port}"})
            with pytest.raises(RestFault, match="something else than JSON: check catalog_uri"):
                client.call("GET", "namespaces")
            thread.join(20)
