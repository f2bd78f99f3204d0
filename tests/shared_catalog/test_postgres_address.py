"""Addresses of PostgreSQL, in JDBC's words and in those of its own client library."""

from __future__ import annotations

import pytest

from sparkport.spark.lake.postgres_address import PostgresAddress


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("uri", "options", "expected"),
    [
        ("jdbc:postgresql:d", {}, {"host": "localhost", "dbname": "d"}),
        ("jdbc:postgresql:/", {}, {"host": "localhost"}),
        ("jdbc:postgresql://h/d", {}, {"host": "h", "port": "5432", "dbname": "d"}),
        ("jdbc:postgresql://h:7/a%2Fb", {}, {"host": "h", "port": "7", "dbname": "a/b"}),
        ("jdbc:postgresql://[::1]:7/d", {}, {"host": "::1", "port": "7"}),
        ("jdbc:postgresql://a,b:7/d", {}, {"host": "a,b", "port": "5432,7"}),
        ("jdbc:postgresql://h/d?user=u&sslmode=require", {}, {"user": "u", "sslmode": "require"}),
        ("jdbc:postgresql://h/d?ssl", {}, {"sslmode": "verify-full"}),
        ("jdbc:postgresql://h/d?ssl=true&sslmode=prefer", {}, {"sslmode": "prefer"}),
        ("jdbc:postgresql://h/d?user=u", {"jdbc.user": "v"}, {"user": "v"}),
        ("jdbc:postgresql://h/d", {"jdbc.loginTimeout": "3"}, {"connect_timeout": "3"}),
        ("jdbc:postgresql://h/d?connectTimeout=0", {}, {"connect_timeout": "10"}),
        ("jdbc:postgresql://h/d?currentSchema=s", {}, {"options": "-c search_path=s"}),
        ("jdbc:postgresql://h/d?targetServerType=master", {}, {"target_session_attrs": "primary"}),
        ("jdbc:postgresql://h/d?prepareThreshold=0", {"s3.endpoint": "e"}, {}),
    ],
)
def test_settings_of_jdbc_mean_the_same(
    uri: str, options: dict[str, str], expected: dict[str, str]
) -> None:
    found = dict(PostgresAddress.of(uri, options).parameters)
    assert expected.items() <= found.items()
    assert not {"prepareThreshold", "s3.endpoint", "ssl"} & found.keys()


def test_what_jdbc_leaves_open_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "elsewhere")
    found = PostgresAddress.of("jdbc:postgresql:///", {}).parameters
    assert not {"host", "port", "dbname", "user", "password"} & found.keys()


def test_an_address_does_not_show_its_password() -> None:
    address = PostgresAddress.of("jdbc:postgresql://h/d", {"jdbc.password": "s3cret"})
    assert "s3cret" not in repr(address)
