"""A small Flight server on pyarrow that follows the protocol, except at a chosen point.

`server.spoil[point]` is called with what an honest server would send at that point, and returns
what is sent instead.
"""

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight
import zstandard

CATALOG = "shop"
REUSE = "arrow-flight-reuse-connection://?"
ROWID = 2**64 - 1
ROWID_FIELD = pa.field("row", pa.int64(), nullable=False, metadata={"is_rowid": "1"})
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), metadata={"comment": "who", "default": "'nobody'"}),
        pa.field("amount", pa.float64()),
    ],
    metadata={"check_constraints": msgpack.packb({"constraints": ["amount >= 0"]})},
)


def with_rowid(schema: pa.Schema) -> pa.Schema:
    return schema.append(ROWID_FIELD)


def orders(count: int) -> pa.Table:
    ids = list(range(count))
    return pa.table(
        [ids, [f"n{i}" for i in ids], [i * 0.5 for i in ids], ids], schema=with_rowid(COLUMNS)
    )


def compressed(content: bytes) -> bytes:
    return msgpack.packb([len(content), zstandard.ZstdCompressor().compress(content)])


def inline(infos: list[bytes]) -> dict[str, Any]:
    serialized = compressed(msgpack.packb(infos))
    return {"sha256": hashlib.sha256(serialized).hexdigest(), "url": None, "serialized": serialized}


NOTHING: dict[str, Any] = {"sha256": "", "url": None, "serialized": None}


def app_metadata(name: str, schema: str = "sales", **changed: Any) -> dict[str, Any]:
    return {
        "type": "table",
        "schema": schema,
        "catalog": CATALOG,
        "name": name,
        "comment": None,
        "input_schema": None,
        "action_name": None,
        "description": None,
        "extra_data": None,
        **changed,
    }


def described(
    schema: pa.Schema, descriptor: flight.FlightDescriptor, metadata: dict[str, Any] | None
) -> bytes:
    packed = msgpack.packb(metadata) if metadata is not None else b""
    return flight.FlightInfo(schema, descriptor, [], -1, -1, False, packed).serialize()


class _Headers(flight.ServerMiddlewareFactory):
    def __init__(self, seen: list[tuple[str, dict[str, list[str]]]]) -> None:
        self._seen = seen

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> flight.ServerMiddleware:
        self._seen.append((info.method.name, headers))
        return _Kept(headers)


class _Kept(flight.ServerMiddleware):
    def __init__(self, headers: dict[str, list[str]]) -> None:
        self.headers = headers


class FlightDouble(flight.FlightServerBase):
    """Catalog `shop`, schema `sales`, table `orders`; everything else is made by DDL."""

    def __init__(
        self,
        rows: int = 5,
        *,
        catalog: str = CATALOG,
        schema: str = "sales",
        joined_path: bool = False,
    ) -> None:
        self.catalog = catalog
        self.joined_path = joined_path
        self.calls: list[tuple[str, dict[str, list[str]]]] = []
        self.bodies: list[tuple[str, bytes]] = []
        self.spoil: dict[str, Callable[[Any], Any]] = {}
        self.tables: dict[tuple[str, str], pa.Table] = {(schema, "orders"): orders(rows)}
        self.schemas = [schema]
        self.version = 1
        self.endpoint_count = 1
        self.released = threading.Event()
        super().__init__("grpc://127.0.0.1:0", middleware={"headers": _Headers(self.calls)})

    @property
    def location(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def point(self, name: str, honest: Any) -> Any:
        return self.spoil[name](honest) if name in self.spoil else honest

    # ------------------------------------------------------------------------------------- catalog

    def info(self, schema: str, name: str) -> bytes:
        arrow_schema = self.point("arrow_schema", self.tables[schema, name].schema)
        path = [self.catalog, schema, "table", name]
        path = self.point("path", ["/".join(path)] if self.joined_path else path)
        metadata = self.point("app_metadata", app_metadata(name, schema, catalog=self.catalog))
        return described(arrow_schema, flight.FlightDescriptor.for_path(*path), metadata)

    def infos(self, schema: str) -> list[bytes]:
        return self.point("infos", [self.info(*key) for key in self.tables if key[0] == schema])

    def list_schemas(self) -> list[bytes]:
        schemas = [
            {
                "name": schema,
                "description": "",
                "tags": {},
                "contents": self.point("contents", inline(self.infos(schema))),
                "is_default": None,
            }
            for schema in self.schemas
        ]
        root = {
            "contents": NOTHING,
            "schemas": schemas,
            "version_info": {"catalog_version": self.version, "is_fixed": False},
        }
        packed = self.point("root_bytes", msgpack.packb(self.point("root", root)))
        return [compressed(packed)]

    def list_flights(self, context: Any, criteria: bytes) -> Any:
        for body in self.infos("sales"):
            yield flight.FlightInfo.deserialize(body)

    def get_flight_info(
        self, context: Any, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        body = self.info(*self.key(descriptor))
        return flight.FlightInfo.deserialize(self.point("get_flight_info", body))

    def key(self, descriptor: flight.FlightDescriptor) -> tuple[str, str]:
        path = "/".join(element.decode() for element in descriptor.path).split("/")
        return path[1], path[3]

    # ------------------------------------------------------------------------------------- actions

    def do_action(self, context: Any, action: flight.Action) -> Any:
        body = action.body.to_pybytes()
        self.bodies.append((action.type, body))
        results = getattr(self, f"action_{action.type}", self.alter)(_decoded(body))
        return self.point(action.type, results)

    def action_list_schemas(self, body: dict[str, Any]) -> list[bytes]:
        return self.list_schemas()

    def action_catalog_version(self, body: dict[str, Any]) -> list[bytes]:
        return [msgpack.packb({"catalog_version": self.version, "is_fixed": False})]

    def action_create_transaction(self, body: dict[str, Any]) -> list[bytes]:
        return [msgpack.packb({"identifier": f"tx-{len(self.bodies)}"})]

    def action_flight_info(self, body: dict[str, Any]) -> list[bytes]:
        return [self.info(*self.key(flight.FlightDescriptor.deserialize(body["descriptor"])))]

    def action_endpoints(self, body: dict[str, Any]) -> list[bytes]:
        key = self.key(flight.FlightDescriptor.deserialize(body["descriptor"]))
        ids = body["parameters"]["column_ids"]
        endpoints = [
            flight.FlightEndpoint(
                msgpack.packb([*key, ids, number, self.endpoint_count]),
                self.point("locations", [REUSE]),
            ).serialize()
            for number in range(self.endpoint_count)
        ]
        return [msgpack.packb(self.point("endpoint_list", endpoints))]

    def action_column_statistics(self, body: dict[str, Any]) -> list[bytes]:
        key = self.key(flight.FlightDescriptor.deserialize(body["flight_descriptor"]))
        column = self.tables[key].column(body["column_name"].decode())
        bounds = pc.min_max(column)
        honest = {
            "min": pa.array([bounds["min"]], column.type),
            "max": pa.array([bounds["max"]], column.type),
            "has_not_null": pa.array([True]),
            "has_null": pa.array([True]),
            "distinct_count": pa.array([5], pa.uint64()),
            "contains_unicode": pa.array([True]),
            "max_string_length": pa.array([100], pa.uint64()),
        }
        table = pa.table(self.point("statistics", honest))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return [sink.getvalue().to_pybytes()]

    def action_create_schema(self, body: dict[str, Any]) -> list[bytes]:
        self.schemas.append(body["schema"].decode())
        return [msgpack.packb(inline([]))]

    def action_drop_schema(self, body: dict[str, Any]) -> list[bytes]:
        self.schemas.remove(body["name"].decode())
        return []

    def action_create_table(self, body: dict[str, Any]) -> list[bytes]:
        schema = pa.ipc.read_schema(pa.py_buffer(body["arrow_schema"]))
        key = body["schema_name"].decode(), body["table_name"].decode()
        self.tables[key] = with_rowid(schema).empty_table()
        return [self.info(*key)]

    def action_drop_table(self, body: dict[str, Any]) -> list[bytes]:
        del self.tables[body["schema_name"].decode(), body["name"].decode()]
        return []

    def action_rename_table(self, body: dict[str, Any]) -> list[bytes]:
        schema, name, new_name = (
            body[key].decode() for key in ("schema", "name", "new_table_name")
        )
        self.tables[schema, new_name] = self.tables.pop((schema, name))
        return [self.info(schema, new_name)]

    def alter(self, body: dict[str, Any]) -> list[bytes]:
        """Change nothing: the client simulation does not look at the altered table."""
        if "schema" not in body:
            return [b"one", b"two"]
        return [self.info(body["schema"].decode(), body["name"].decode())]

    # ---------------------------------------------------------------------------------------- rows

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        schema, name, ids, number, count = msgpack.unpackb(ticket.ticket)
        table = self.tables[schema, name]
        part = table.slice(table.num_rows * number // count, table.num_rows // count + 1)
        if number < count - 1:
            part = part.slice(
                0, table.num_rows * (number + 1) // count - table.num_rows * number // count
            )
        wanted = {table.num_columns - 1 if i == ROWID else i for i in ids}
        fields = [
            f if i in wanted else pa.field(f.name, pa.null()) for i, f in enumerate(table.schema)
        ]
        arrays = [
            part.column(i) if i in wanted else pa.chunked_array([pa.nulls(part.num_rows)])
            for i in range(table.num_columns)
        ]
        padded = pa.table(arrays, schema=pa.schema(fields))
        padded = self.point("rows", padded)
        chunks = self.point("chunks", padded.to_batches(max_chunksize=1000))
        return flight.GeneratorStream(padded.schema, chunks)

    def do_exchange(
        self,
        context: Any,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        headers = context.get_middleware("headers").headers
        key = self.key(descriptor)
        run = Change(self, key, headers["airport-operation"][0], headers["return-chunks"][0] == "1")
        self.point("exchange", run.run)(reader, writer)


class Change:
    """An honest exchange; batches are applied at the end."""

    def __init__(
        self, server: FlightDouble, key: tuple[str, str], operation: str, returning: bool
    ) -> None:
        self.server = server
        self.key = key
        self.operation = operation
        self.returning = returning

    def run(self, reader: Any, writer: Any) -> None:
        before = self.server.tables[self.key]
        writer.begin(reader.schema if self.operation == "update" else before.schema)
        batches = []
        for chunk in reader:
            batches.append(chunk.data)
            if self.returning:
                writer.write_batch(self.answer(before, chunk.data))
        sent = pa.Table.from_batches(batches, schema=reader.schema)
        self.server.tables[self.key] = self.applied(before, sent)
        writer.write_metadata(msgpack.packb({"total_changed": sent.num_rows}))

    def answer(self, before: pa.Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.operation == "update":
            return batch
        if self.operation == "insert":
            arrays = [*batch.columns, pa.array(range(batch.num_rows), pa.int64())]
            return pa.record_batch(arrays, schema=before.schema)
        found = before.filter(pc.is_in(before.column("row"), value_set=batch.column("rowid")))
        return found.combine_chunks().to_batches()[0]

    def applied(self, before: pa.Table, sent: pa.Table) -> pa.Table:
        rows = before.to_pylist()
        if self.operation == "delete":
            gone = set(sent.column("rowid").to_pylist())
            rows = [row for row in rows if row["row"] not in gone]
        elif self.operation == "insert":
            first = max((row["row"] for row in rows), default=-1) + 1
            rows += [{**row, "row": first + i} for i, row in enumerate(sent.to_pylist())]
        else:
            by_id = {row["row"]: row for row in rows}
            for changed in sent.to_pylist():
                by_id[changed.pop("rowid")].update(changed)
        return pa.Table.from_pylist(rows, schema=before.schema)


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        value = msgpack.unpackb(body, raw=True, strict_map_key=False)
    except (ValueError, msgpack.UnpackException):
        return {}
    return _text_keys(value) if isinstance(value, dict) else {}


def _text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.decode(): _text_keys(element) for key, element in value.items()}
    return value
