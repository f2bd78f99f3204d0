"""Credentials come from where the programs of AWS look for them."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from tests.parts.faults import FaultProxy
from tests.parts.s3 import S3Server
from tests.storage.contract import CONTENT

from sparkport.spark.iceberg import aws_credentials
from sparkport.spark.iceberg.aws_credentials import AwsKeys, default_keys
from sparkport.spark.iceberg.s3_storage import S3Storage

_VARIABLES = (
    *("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "CONFIG_FILE"),
    *("SHARED_CREDENTIALS_FILE", "WEB_IDENTITY_TOKEN_FILE", "ROLE_ARN", "ENDPOINT_URL_STS"),
    *("CONTAINER_CREDENTIALS_RELATIVE_URI", "CONTAINER_CREDENTIALS_FULL_URI"),
    *("CONTAINER_AUTHORIZATION_TOKEN", "CONTAINER_AUTHORIZATION_TOKEN_FILE"),
)


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in _VARIABLES:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    aws_credentials._known.clear()
    yield
    aws_credentials._known.clear()


class _Answers(BaseHTTPRequestHandler):
    """Answers as the services that give out credentials do."""

    seconds: ClassVar[float] = 3600
    keys: ClassVar[tuple[str, str, str]] = ("k", "s", "t")

    def do_GET(self) -> None:
        if self.headers["x-aws-ec2-metadata-token"] == "session":
            self._answer("role" if self.path.endswith("/") else self._json())
        else:
            self._answer(self._json() if self.headers["authorization"] == "token" else "{}")

    def do_PUT(self) -> None:
        self._answer("session")

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["content-length"])).decode()
        assert "WebIdentityToken=its-token" in asked
        access, secret, token = self.keys
        self._answer(
            f"<X><AccessKeyId>{access}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{self._end()}</Expiration></X>"
        )

    def _json(self) -> str:
        access, secret, token = self.keys
        found = {"AccessKeyId": access, "SecretAccessKey": secret, "Token": token}
        return json.dumps({**found, "Expiration": self._end()})

    def _end(self) -> str:
        moment = datetime.fromtimestamp(time.time() + self.seconds, timezone.utc)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a service."""
    monkeypatch.setattr(_Answers, "seconds", 3600)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_nowhere() -> None:
    assert default_keys() is None


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert default_keys() == AwsKeys("k", "s")
    assert "s" not in repr(default_keys()).removeprefix("AwsKeys")


@pytest.mark.parametrize("profile", ["default", "other"])
def test_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str) -> None:
    (tmp_path / ".aws").mkdir()
    text = "[default]\naws_access_key_id = k\naws_secret_access_key = s%\n[other]\nx = 1\n"
    (tmp_path / ".aws" / "credentials").write_text(text)
    text = "[profile other]\naws_access_key_id=k2\naws_secret_access_key=s2\naws_session_token=t\n"
    (tmp_path / ".aws" / "config").write_text(text)
    monkeypatch.setenv("AWS_PROFILE", profile)
    wanted = {"default": AwsKeys("k", "s%"), "other": AwsKeys("k2", "s2", "t")}
    assert default_keys() == wanted[profile]


def test_a_profile_with_a_role_is_left_to_arrow(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    text = "[default]\nrole_arn=r\naws_access_key_id=k\naws_secret_access_key=s\n"
    (tmp_path / ".aws" / "config").write_text(text)
    assert default_keys() is None


def test_a_service_account(answers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("its-token\n")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:role")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", answers)
    keys = default_keys()
    assert keys is not None
    assert keys[:3] == ("k", "s", "t")


def test_a_container(answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{answers}/creds")
    assert default_keys() is None
    aws_credentials._known.clear()
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "token")
    keys = default_keys()
    assert keys is not None
    assert keys[:3] == ("k", "s", "t")


def test_a_machine_and_its_new_credentials(answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", answers)
    monkeypatch.setattr(_Answers, "seconds", 200)  # they end soon, and are asked for each time
    keys = default_keys()
    assert keys is not None
    assert keys[:3] == ("k", "s", "t")
    monkeypatch.setattr(_Answers, "keys", ("k2", "s2", "t2"))
    keys = default_keys()
    assert keys is not None
    assert keys[:3] == ("k2", "s2", "t2")


def test_s3_is_asked_with_them(
    s3: S3Server, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "credentials").write_text(
        f"[lake]\naws_access_key_id={s3.access_key}\naws_secret_access_key={s3.secret_key}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    options = s3.options(proxy.endpoint())
    for name in ("s3.access-key-id", "s3.secret-access-key"):
        del options[name]
    storage, place = S3Storage(options), f"s3://{s3.bucket}/{uuid.uuid4().hex}"
    storage.write(place, CONTENT)
    assert storage.read(place, 0, 10) == CONTENT
    storage.delete(place)
    assert proxy.operations() == ["PutObject", "GetObject", "DeleteObject"]
