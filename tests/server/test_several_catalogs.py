"""Several catalogs behind a server: the catalog that a call means, adding and removing."""

from __future__ import annotations

import msgpack
import pytest
from tests.server.catalogs import ListedTable, catalog_of, numbers
from tests.server.raw_client import metadata, path

from sparkport.errors import AlreadyExists, BadRequest, NotFound
from sparkport.server import Server


def one(name, rows):
    return catalog_of(ListedTable("t", numbers(rows)), name=name)


@pytest.fixture
def server(start):
    return start([one("first", 1), one("second", 2)])


@pytest.fixture
def client(connect, server):
    return connect(server)


def count(client, descriptor, headers=None):
    return client.scan(descriptor, headers=headers).table.num_rows


def test_each_catalog_has_its_own_tables(client):
    assert count(client, path("first", "s", "t")) == 1
    assert count(client, path("second", "s", "t")) == 2
    for name, rows in (("first", 1), ("second", 2)):
        assert count(client, client.list_schemas(name)["s"]["t"].descriptor) == rows


def test_the_first_catalog_is_the_default_one(client):
    assert count(client, path("s", "t")) == 1
    assert count(client, client.list_schemas("")["s"]["t"].descriptor) == 1


def test_a_catalog_without_a_name_is_the_default_one_wherever_it_stands(serve):
    client = serve([one("first", 1), one("", 2)])

    assert count(client, path("s", "t")) == 2


def test_the_header_says_which_catalog_is_meant_where_nothing_else_does(client):
    assert count(client, path("s", "t"), {"airport-catalog": "second"}) == 2
    assert (
        client.failure("GetSchema", path("s", "t").serialize(), {"airport-catalog": "nope"}).code
        == "NOT_FOUND"
    )


def test_body_and_descriptor_win_over_the_header(client):
    headers = {"airport-catalog": "second"}

    assert count(client, path("first", "s", "t"), headers) == 1
    assert count(client, client.list_schemas("first")["s"]["t"].descriptor, headers) == 1
    info = client.list_schemas("first", headers)["s"]["t"]
    assert metadata(info)["catalog"] == "first"
    assert count(client, info.descriptor, {"airport-catalog": "nope"}) == 1


def test_a_listing_repeats_the_name_as_the_client_spelled_it(client):
    """The client compares it letter by letter (airport §3.5)."""
    assert metadata(client.list_schemas("first")["s"]["t"])["catalog"] == "first"
    assert metadata(client.list_schemas("")["s"]["t"])["catalog"] == ""


def test_catalogs_can_be_added_and_removed_while_the_server_runs(server, client):
    assert client.action_failure("list_schemas", {"catalog_name": "third"}).code == "NOT_FOUND"

    server.add_catalog(one("third", 3))
    descriptor = client.list_schemas("third")["s"]["t"].descriptor
    assert count(client, descriptor) == 3

    server.remove_catalog("third")
    assert client.action_failure("list_schemas", {"catalog_name": "third"}).code == "NOT_FOUND"
    assert client.failure("GetSchema", descriptor.serialize()).code == "NOT_FOUND"
    assert count(client, path("first", "s", "t")) == 1


def test_a_handle_of_a_removed_catalog_never_reads_another_one(start, connect):
    server = start([one("", 1), one("other", 2)])
    client = connect(server)
    descriptor = client.list_schemas("")["s"]["t"].descriptor
    (endpoint,) = client.endpoints(descriptor)
    server.remove_catalog("")

    assert client.failure("GetSchema", descriptor.serialize()).code == "NOT_FOUND"
    assert client.failure("DoGet", endpoint.ticket.serialize()).code == "NOT_FOUND"


def test_a_catalog_can_be_served_under_another_name(start, connect):
    server = start({"renamed": one("own", 4)})
    server.add_catalog(one("own", 5), name="added")
    client = connect(server)

    assert count(client, path("renamed", "s", "t")) == 4
    assert count(client, path("added", "s", "t")) == 5
    assert client.action_failure("list_schemas", {"catalog_name": "own"}).code == "NOT_FOUND"


def test_two_catalogs_of_one_name_are_refused(server):
    with pytest.raises(AlreadyExists, match="first"):
        server.add_catalog(one("first", 1))
    with pytest.raises(AlreadyExists, match="same"):
        Server([one("same", 1), one("same", 2)])


@pytest.mark.parametrize("name", ["ü", "a\nb", "🦆", "\x7f"])
def test_a_name_that_duckdb_could_not_send_is_refused(server, name):
    with pytest.raises(BadRequest, match="ASCII"):
        server.add_catalog(one(name, 1))


def test_removing_an_unknown_catalog_is_an_error(server):
    with pytest.raises(NotFound, match="nope"):
        server.remove_catalog("nope")


def test_a_server_without_catalogs_says_so(serve):
    client = serve([])

    failure = client.action_failure("list_schemas", {"catalog_name": ""})

    assert (failure.code, failure.message) == ("NOT_FOUND", "this server has no catalog")
    assert client.call("ListFlights", b"") == []


def test_an_empty_catalog_can_be_attached(serve):
    client = serve(catalog_of(name="empty"))

    assert client.list_schemas("empty") == {"s": {}}
    assert msgpack.unpackb(client.action("catalog_version", {"catalog_name": "empty"})[0]) == {
        "catalog_version": 1,
        "is_fixed": False,
    }
    assert msgpack.unpackb(client.action("create_transaction", {"catalog_name": "empty"})[0]) == {
        "identifier": None
    }
