"""The byte examples of airport §18.1, in both directions where both exist."""

from __future__ import annotations

import hashlib

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import zstandard

from sparkport.catalog.functions import Stability
from sparkport.catalog.interfaces import CatalogVersion
from sparkport.wire import catalogs, ddl, scan, transactions, write
from sparkport.wire.flight import REUSE_CONNECTION, decode_descriptor, encode_endpoint
from sparkport.wire.ipc import decode_arrow_schema


def test_a_body_that_names_only_the_catalog() -> None:
    body = bytes.fromhex("81 ac 636174616c6f675f6e616d65 a3 636174")
    assert catalogs.decode_list_schemas(body) == catalogs.CatalogRequest("cat")
    assert catalogs.decode_catalog_version(body) == catalogs.CatalogRequest("cat")
    assert transactions.decode_create_transaction(body) == transactions.CreateTransaction("cat")


def test_answer_of_create_transaction_without_an_id() -> None:
    assert transactions.encode_transaction(None) == bytes.fromhex("81 aa 6964656e746966696572 c0")


def test_answer_of_catalog_version() -> None:
    expected = bytes.fromhex("82 af 636174616c6f675f76657273696f6e 01 a8 69735f6669786564 c2")
    assert catalogs.encode_catalog_version(CatalogVersion(1)) == expected


def test_total_changed() -> None:
    assert write.encode_total_changed(3) == bytes.fromhex("81 ad 746f74616c5f6368616e676564 03")


def test_progress() -> None:
    assert scan.encode_progress(0.5) == bytes.fromhex("81 a8 70726f6772657373 cb 3fe0000000000000")
    assert scan.encode_progress(1) == bytes.fromhex("81 a8 70726f6772657373 cb 3ff0000000000000")


def test_serialised_descriptors() -> None:
    path = decode_descriptor(bytes.fromhex("08 01 1a 02 7331 1a 01 74"))
    assert path == flight.FlightDescriptor.for_path("s1", "t")
    command = decode_descriptor(bytes.fromhex("08 02 12 0a 636d642d737472696e67"))
    assert command == flight.FlightDescriptor.for_command(b"cmd-string")


def test_serialised_endpoint() -> None:
    expected = bytes.fromhex(
        "0a 05 0a 03 616263 12 23 0a 21 "
        "6172726f772d666c696768742d72657573652d636f6e6e656374696f6e3a2f2f3f"
    )
    assert encode_endpoint(b"abc") == expected
    assert msgpack.unpackb(scan.encode_endpoints([expected, expected])) == [expected, expected]
    assert REUSE_CONNECTION.encode() in expected
    assert scan.encode_endpoints([]) == b"\x90"


def test_contents_of_an_empty_schema() -> None:
    contents = catalogs.encode_contents([])
    assert contents.serialized == bytes.fromhex("92 01 c4 0a 28b52ffd200109000090")
    assert contents.sha256 == "51be6fe684ad3e21eab08e1478dde151068f39ace9d4fe3838a01e37c4d7c89a"


def test_answer_of_create_schema_is_a_plain_map() -> None:
    contents = catalogs.encode_contents([])
    assert msgpack.unpackb(contents.pack()) == {
        "sha256": contents.sha256,
        "url": None,
        "serialized": contents.serialized,
    }


def test_encapsulated_schema_message() -> None:
    message = pa.schema([("id", pa.int64())]).serialize().to_pybytes()
    assert message.startswith(bytes.fromhex("ffffffff 78000000 10000000"))
    assert len(message) == 128
    assert decode_arrow_schema(message, "arrow_schema") == pa.schema([("id", pa.int64())])


def test_drop_schema_if_exists() -> None:
    body = bytes.fromhex(
        "85 a4 74797065 a6 736368656d61 ac 636174616c6f675f6e616d65 a3 636174 ab "
        "736368656d615f6e616d65 a0a4 6e616d65 a4 6e6f7065 b0 69676e6f72655f6e6f745f666f756e64 c3"
    )
    assert ddl.decode_drop_schema(body) == ddl.DropSchema("cat", "nope", ignore_not_found=True)


def test_endpoints_of_count_star() -> None:
    body = msgpack.packb(
        {
            "descriptor": bytes.fromhex("08011a0273311a0174"),
            "parameters": {
                "json_filters": '{"filters":[],"column_binding_names_by_index":[]}',
                "column_ids": [18446744073709551615],
                "table_function_parameters": "",
                "table_function_input_schema": "",
                "at_unit": "",
                "at_value": "",
            },
        },
        use_bin_type=False,
    )
    assert scan.decode_endpoints(body) == scan.EndpointsRequest(
        flight.FlightDescriptor.for_path("s1", "t"),
        '{"filters":[],"column_binding_names_by_index":[]}',
        (2**64 - 1,),
    )


def unpacked(pair: bytes) -> bytes:
    """Unpack as the client does: exactly `length` bytes, in a single step."""
    length, frame = msgpack.unpackb(pair)
    content = zstandard.ZstdDecompressor().decompress(frame, max_output_size=length)
    assert len(content) == length
    return content


def test_the_list_of_schemas_has_every_key_that_the_client_needs() -> None:
    contents = catalogs.encode_contents([b"flight info"])
    schemas = [
        catalogs.SchemaEntry("sales", contents, "What we sold", {"owner": "ann"}, is_default=True),
        catalogs.SchemaEntry("other", catalogs.encode_contents([])),
    ]
    root = msgpack.unpackb(
        unpacked(catalogs.encode_schema_list(schemas, CatalogVersion(7, fixed=True)))
    )
    assert root["contents"] == {"sha256": "", "url": None, "serialized": None}
    assert root["version_info"] == {"catalog_version": 7, "is_fixed": True}
    sales, other = root["schemas"]
    assert sales == {
        "name": "sales",
        "description": "What we sold",
        "tags": {"owner": "ann"},
        "contents": {"sha256": contents.sha256, "url": None, "serialized": contents.serialized},
        "is_default": True,
    }
    assert (other["description"], other["tags"], other["is_default"]) == ("", {}, False)
    inline = sales["contents"]["serialized"]
    assert hashlib.sha256(inline).hexdigest() == contents.sha256
    assert msgpack.unpackb(unpacked(inline)) == [b"flight info"]


def test_metadata_of_a_table_has_all_keys() -> None:
    assert msgpack.unpackb(
        catalogs.encode_object_metadata("table", "Cat", "s", "tä", "about it")
    ) == {
        "type": "table",
        "schema": "s",
        "catalog": "Cat",
        "name": "tä",
        "comment": "about it",
        "input_schema": None,
        "action_name": None,
        "description": None,
        "extra_data": None,
    }


def test_metadata_of_a_function_carries_its_parameters_and_stability() -> None:
    parameters = pa.schema([("x", pa.int64())])
    packed = catalogs.encode_object_metadata(
        "scalar_function", "c", "s", "f", "", parameters, "adds", Stability.CONSISTENT_WITHIN_QUERY
    )
    metadata = msgpack.unpackb(packed)
    assert metadata["comment"] is None
    assert metadata["description"] == "adds"
    assert pa.ipc.read_schema(pa.py_buffer(metadata["input_schema"])) == parameters
    assert msgpack.unpackb(metadata["extra_data"]) == {"stability": "consistent_within_query"}
