"""Settings that are wrong from the start, or become so: one sentence with what to do, no secret."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.parts.faults import FaultProxy, fault_proxy
from tests.parts.s3 import S3Server
from tests.remote.places import JdbcPlace
from tests.remote.served import COLUMNS, Model, expect_clear, served

from sparkport.cli import main
from sparkport.spark import LakeCatalog
from sparkport.testing import ServerError

_WRONG = "wrong0123456789"


@pytest.fixture(scope="module", params=["jdbc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _leaves_no_trace() -> Iterator[None]:
    """The command line sets logging up."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def closed() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({}, None),
        ({"warehouse": "s3://absent/lake"}, "there is no such bucket"),
        ({"client.region": "eu-north-7"}, "set client.region"),
        ({"s3.endpoint": "http://127.0.0.1:{closed}"}, "set s3.endpoint"),
        ({"s3.access-key-id": _WRONG}, "set s3.access-key-id"),
        ({"s3.secret-access-key": _WRONG}, "set s3.access-key-id and s3.secret-access-key"),
        ({"jdbc.password": _WRONG}, "set jdbc.user and jdbc.password"),
        ({"jdbc.user": "nobody"}, "set jdbc.user and jdbc.password"),
        ({"catalog_uri": "{uri}_absent"}, "correct catalog_uri"),
        ({"catalog_uri": "jdbc:postgresql://127.0.0.1:{closed}/lake"}, "cannot be reached"),
    ],
    ids=str,
)
def test_check_says_what_to_set(
    place: JdbcPlace,
    s3: S3Server,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    closed: int,
    settings: dict[str, str],
    remedy: str | None,
) -> None:
    source = place.source("checked")
    known = {"catalog_uri": source.uri, "warehouse": source.warehouse, **source.options}
    changed = {key: each.format(closed=closed, uri=source.uri) for key, each in settings.items()}
    wanted = {**known, **changed}
    secrets = tmp_path / "secrets.toml"
    lines = [f"{json.dumps(key)} = {json.dumps(wanted[key])}" for key in source.options]
    secrets.write_text("\n".join(lines))
    os.chmod(secrets, 0o600)
    capfd.readouterr()

    code = main(
        ["check", "--catalog=jdbc", f"--secrets-file={secrets}"]
        + [f"--{key.replace('_', '-')}={wanted[key]}" for key in ("catalog_uri", "warehouse")]
    )

    said = capfd.readouterr()
    shown = said.out + said.err
    for secret in (_WRONG, s3.secret_key, place.database("checked").password):
        assert secret not in shown
    wrong = [line for line in said.out.splitlines() if line.startswith("✗")]
    assert (code, len(wrong)) == ((0, 0) if remedy is None else (1, 1)), shown
    assert remedy is None or remedy in wrong[0]


@pytest.mark.parametrize(
    ("status", "code", "operation"),
    [
        (403, "AccessDenied", "PutObject"),
        (400, "ExpiredToken", ""),
        (403, "InvalidAccessKeyId", ""),
    ],
    ids=["a bucket without write permission", "expired credentials", "rotated keys"],
)
@pytest.mark.spark
@pytest.mark.timeout(280)
def test_what_goes_bad_while_the_server_runs_costs_a_clear_error(
    lake: LakeCatalog,
    place: JdbcPlace,
    s3: S3Server,
    tmp_path: Path,
    status: int,
    code: str,
    operation: str,
) -> None:
    name = f"{code.lower()}"
    with (
        fault_proxy(s3.address) as trouble,
        served(place.source(name, trouble.endpoint()), tmp_path) as client,
    ):
        client.create_schema("s")
        client.create_table("s", "t", COLUMNS)
        model = Model(client, 1)
        model.change()
        trouble.fail_next(status, code, operation, times=1 << 30)
        with pytest.raises(ServerError) as caught:
            client.insert("s", "t", pa.table({"id": [-1], "v": [-1]}, schema=COLUMNS))
        expect_clear(str(caught.value), s3.secret_key, s3.access_key)
        _heal(trouble)
        assert model.found() == model.rows
        model.change()
        assert model.refused == []
        assert model.found() == model.rows


def _heal(trouble: FaultProxy) -> None:
    assert any(each.status in (400, 403) for each in trouble.requests())
    trouble.heal()
