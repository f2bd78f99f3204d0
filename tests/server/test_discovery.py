"""GetFlightInfo, GetSchema, ListFlights, ListActions and the list of catalogs."""

from __future__ import annotations

import pyarrow.flight as flight
import pytest
from tests.server.catalogs import ListedCatalog, ListedSchema, ListedTable, catalog_of, numbers
from tests.server.raw_client import REUSE, metadata, path

from sparkport.service.actions import ACTIONS

OPTIONS = flight.FlightCallOptions(timeout=20)


@pytest.fixture
def catalogs():
    first = ListedCatalog(
        "one", [ListedSchema("a", [ListedTable("t", numbers(1))]), ListedSchema("b")]
    )
    first.contents[1].contents += [ListedTable("t", numbers(2)), ListedTable("u", numbers(3))]
    return [first, catalog_of(ListedTable("t", numbers(4)), name="two", schema="a")]


@pytest.fixture
def client(serve, catalogs):
    return serve(catalogs)


@pytest.fixture
def arrow_client(start, catalogs):
    with flight.connect(start(catalogs).location) as client:
        yield client


@pytest.mark.parametrize("elements", [("b", "u"), ("one", "b", "u")])
def test_flight_info_of_a_plain_descriptor_can_be_read(arrow_client, elements):
    info = arrow_client.get_flight_info(path(*elements), OPTIONS)

    assert info.descriptor == path(*elements)  # T42
    assert info.schema.names == ["id", "name", "value"]
    assert [endpoint.locations[0].uri.decode() for endpoint in info.endpoints] == [REUSE]
    rows = arrow_client.do_get(info.endpoints[0].ticket, OPTIONS).read_all()
    assert rows.equals(numbers(3))


def test_flight_info_repeats_a_signed_descriptor(client):
    listed = client.list_schemas("one")["b"]["u"]

    (answer,) = client.call("GetFlightInfo", listed.descriptor.serialize())

    info = flight.FlightInfo.deserialize(answer)
    assert info.descriptor == listed.descriptor
    assert info.schema == listed.schema
    assert metadata(info) == metadata(listed)


@pytest.mark.parametrize("elements", [("b", "u"), ("one", "b", "u"), ("two", "a", "t")])
def test_the_schema_of_a_table_can_be_asked_for(arrow_client, elements):
    assert arrow_client.get_schema(path(*elements), OPTIONS).schema.names == ["id", "name", "value"]


def test_the_catalogs_can_be_listed(client, arrow_client):
    info = arrow_client.get_flight_info(path("__databases"), OPTIONS)
    rows = arrow_client.do_get(info.endpoints[0].ticket, OPTIONS).read_all()

    assert info.descriptor == path("__databases")
    assert rows.to_pylist() == [
        {"name": "one", "description": None},
        {"name": "two", "description": None},
    ]
    assert (
        arrow_client.get_schema(path("__databases"), OPTIONS).schema == rows.schema == info.schema
    )
    assert client.scan(path("__databases")).table.equals(rows)


def test_list_flights_gives_every_table_of_every_catalog(client):
    assert _listed(client, {}) == [
        ("one", "a", "t"),
        ("one", "b", "t"),
        ("one", "b", "u"),
        ("two", "a", "t"),
    ]


@pytest.mark.parametrize(
    ("catalog", "schema", "expected"),
    [
        ("one", "b", [("one", "b", "t"), ("one", "b", "u")]),
        ("two", "a", [("two", "a", "t")]),
        ("two", "b", []),
        ("one", "nope", []),
        ("", "a", [("", "a", "t")]),
        ("one", None, [("one", "a", "t"), ("one", "b", "t"), ("one", "b", "u")]),
        (None, "a", [("one", "a", "t"), ("two", "a", "t")]),
    ],
)
def test_list_flights_honours_both_filters(client, catalog, schema, expected):
    headers = {
        "airport-list-flights-filter-catalog": catalog,
        "airport-list-flights-filter-schema": schema,
    }

    assert (
        _listed(client, {key: value for key, value in headers.items() if value is not None})
        == expected
    )


def test_list_flights_of_an_unknown_catalog_is_not_found(client):
    assert (
        client.failure("ListFlights", b"", {"airport-list-flights-filter-catalog": "nope"}).code
        == "NOT_FOUND"
    )


def test_list_flights_gives_what_list_schemas_gives(client):
    headers = {
        "airport-list-flights-filter-catalog": "one",
        "airport-list-flights-filter-schema": "b",
    }

    flights = [
        flight.FlightInfo.deserialize(answer) for answer in client.call("ListFlights", b"", headers)
    ]

    assert [info.serialize() for info in flights] == [
        info.serialize() for info in client.list_schemas("one")["b"].values()
    ]


def test_list_actions_names_every_action(arrow_client):
    listed = arrow_client.list_actions(OPTIONS)

    assert [action.type for action in listed] == list(ACTIONS)
    assert all(action.description for action in listed)


def _listed(client, headers):
    infos = [
        flight.FlightInfo.deserialize(answer) for answer in client.call("ListFlights", b"", headers)
    ]
    found = [metadata(info) for info in infos]
    return [(each["catalog"], each["schema"], each["name"]) for each in found]
