"""Tickets and descriptors that are forged, altered, or of another server or Arrow schema."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.server.catalogs import ListedTable, catalog_of, numbers
from tests.server.raw_client import RawClient, endpoints_body, path, ticket_message

from sparkport.server import ServerSettings


@pytest.fixture
def table():
    return ListedTable("t", numbers())


@pytest.fixture
def client(serve, table):
    return serve(catalog_of(table, name="cat"))


@pytest.fixture
def descriptor(client):
    return client.list_schemas("cat")["s"]["t"].descriptor


def failures(client: RawClient, descriptor: flight.FlightDescriptor):
    """The statuses of every call that takes a descriptor."""
    return [
        client.action_failure("endpoints", endpoints_body(descriptor)),
        client.action_failure(
            "flight_info", {"descriptor": descriptor.serialize(), "at_unit": "", "at_value": ""}
        ),
        client.failure("GetFlightInfo", descriptor.serialize()),
        client.failure("GetSchema", descriptor.serialize()),
    ]


def test_a_ticket_with_any_byte_altered_is_refused(client, descriptor):
    (endpoint,) = client.endpoints(descriptor, [0])
    ticket = endpoint.ticket.ticket

    for position in range(len(ticket)):
        altered = bytearray(ticket)
        altered[position] ^= 1 << (position % 8)
        failure = client.failure("DoGet", ticket_message(bytes(altered)))
        assert failure.code == "INVALID_ARGUMENT", position
        assert "ATTACH" in failure.message


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, -1])
def test_a_ticket_that_is_cut_off_is_refused(client, descriptor, length):
    (endpoint,) = client.endpoints(descriptor)

    assert (
        client.failure("DoGet", ticket_message(endpoint.ticket.ticket[:length])).code
        == "INVALID_ARGUMENT"
    )


@pytest.mark.parametrize("ticket", [b"\0", b"{}", b"x" * 1_000_000])
def test_a_ticket_that_was_made_up_is_refused(client, ticket):
    assert client.failure("DoGet", ticket_message(ticket)).code == "INVALID_ARGUMENT"


def test_a_ticket_of_another_server_is_refused(client, serve, table):
    (endpoint,) = serve(catalog_of(table, name="cat")).endpoints(path("s", "t"))

    assert (
        client.failure("DoGet", ticket_message(endpoint.ticket.ticket)).code == "INVALID_ARGUMENT"
    )


def test_a_signature_of_a_descriptor_is_none_of_a_ticket(client, descriptor):
    signature = bytes.fromhex(descriptor.path[-1].decode())
    (endpoint,) = client.endpoints(descriptor)

    assert (
        client.failure("DoGet", ticket_message(signature + endpoint.ticket.ticket[16:])).code
        == "INVALID_ARGUMENT"
    )


def test_a_descriptor_with_any_element_altered_is_refused(client, descriptor):
    for position in range(1, len(descriptor.path)):
        elements = [element.decode() for element in descriptor.path]
        for altered in (
            elements[position] + "x",
            elements[position][:-1],
            elements[position].upper() + "0",
            "",
        ):
            if altered == elements[position]:
                continue
            forged = [*elements[:position], altered, *elements[position + 1 :]]
            for failure in failures(client, path(*forged)):
                assert failure.code == "INVALID_ARGUMENT", forged
                assert "ATTACH" in failure.message


def test_a_descriptor_with_any_bit_of_its_signature_altered_is_refused(client, descriptor):
    *elements, signature = [element.decode() for element in descriptor.path]
    for bit in range(len(signature) * 4):
        altered = f"{int(signature, 16) ^ (1 << bit):0{len(signature)}x}"
        assert (
            client.failure("GetSchema", path(*elements, altered).serialize()).code
            == "INVALID_ARGUMENT"
        )


def test_a_descriptor_of_another_server_is_refused_with_the_remedy(client, serve, table):
    foreign = serve(catalog_of(table, name="cat")).list_schemas("cat")["s"]["t"].descriptor

    for failure in failures(client, foreign):
        assert failure.code == "INVALID_ARGUMENT"
        assert "DETACH" in failure.message


def test_handles_survive_a_restart_with_the_same_secret(serve, table):
    settings = ServerSettings(secret=b"s" * 32)
    before = serve(catalog_of(table, name="cat"), settings)
    descriptor = before.list_schemas("cat")["s"]["t"].descriptor
    (endpoint,) = before.endpoints(descriptor)

    after = serve(catalog_of(table, name="cat"), settings)

    assert after.scan(descriptor).rows() == numbers().to_pylist()
    assert after.get(endpoint.ticket.ticket).rows() == numbers().to_pylist()


def test_a_descriptor_of_an_older_schema_says_to_attach_again(client, descriptor, table):
    table.rows = table.rows.append_column("more", pa.array([1, 2, 3]))

    for failure in failures(client, descriptor):
        assert failure.code == "FAILED_PRECONDITION"
        assert "s.t" in failure.message
        assert "DETACH the catalog and ATTACH it again" in failure.message


def test_a_descriptor_is_good_again_when_the_schema_is_back(client, descriptor, table):
    original = table.rows
    table.rows = original.drop_columns(["name"])
    assert (
        client.action_failure("endpoints", endpoints_body(descriptor)).code == "FAILED_PRECONDITION"
    )
    table.rows = original

    assert client.scan(descriptor).table.num_rows == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.rename_columns(["id", "title", "value"]),
        lambda rows: rows.select(["name", "id", "value"]),
        lambda rows: rows.set_column(0, "id", rows["id"].cast(pa.int32())),
    ],
    ids=["renamed", "reordered", "retyped"],
)
def test_every_change_of_columns_makes_descriptor_and_ticket_stale(
    client, descriptor, table, change
):
    (endpoint,) = client.endpoints(descriptor)
    table.rows = change(table.rows)

    assert (
        client.action_failure("endpoints", endpoints_body(descriptor)).code == "FAILED_PRECONDITION"
    )
    assert (
        client.failure("DoGet", ticket_message(endpoint.ticket.ticket)).code
        == "FAILED_PRECONDITION"
    )


def test_comments_and_nullability_do_not_make_a_descriptor_stale(client, descriptor, table):
    fields = [
        field.with_nullable(field.name != "id").with_metadata({"comment": "x"})
        for field in table.rows.schema
    ]
    table.rows = table.rows.cast(pa.schema(fields))

    assert client.scan(descriptor).table.num_rows == 3


def test_a_plain_descriptor_reads_whatever_the_schema_is_now(client, table):
    table.rows = table.rows.select(["name"])

    assert client.scan(path("s", "t")).table.column_names == ["name"]


def test_descriptors_are_printable_ascii_whatever_the_names(serve):
    client = serve(catalog_of(ListedTable("t/ü 🦆\n%\"'", numbers()), name="cat", schema="s/é."))

    ((info,),) = [tables.values() for tables in client.list_schemas("cat").values()]

    for element in info.descriptor.path:
        assert element.decode().isascii()
        assert element.decode().isprintable()
        assert b"/" not in element
    assert client.scan(info.descriptor).table.num_rows == 3
