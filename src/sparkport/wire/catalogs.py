"""Requests about a whole catalog, and the descriptions of schemas and their objects."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import zstandard

from sparkport.catalog.functions import Stability
from sparkport.catalog.interfaces import CatalogVersion
from sparkport.errors import CatalogFault, LimitExceeded
from sparkport.wire.packing import pack, read_fields

__all__ = [
    "CatalogRequest",
    "ObjectKind",
    "SchemaContents",
    "SchemaEntry",
    "compressed",
    "decode_catalog_version",
    "decode_list_schemas",
    "encode_catalog_version",
    "encode_contents",
    "encode_object_metadata",
    "encode_schema_list",
]

ObjectKind: TypeAlias = Literal["table", "scalar_function", "table_function"]
"""A table in/out function is a "table_function" too (airport §3.5)."""

_COMPRESSION_LEVEL = 3
_LENGTH_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """A question about a catalog.

    The empty name is the server's default catalog; None means that the body does not say.
    """

    catalog: str | None


def decode_list_schemas(body: bytes) -> CatalogRequest:
    return _decode_catalog_request(body, "list_schemas")


def decode_catalog_version(body: bytes) -> CatalogRequest:
    return _decode_catalog_request(body, "catalog_version")


def _decode_catalog_request(body: bytes, action: str) -> CatalogRequest:
    fields = read_fields(body, action)
    return CatalogRequest(fields.optional_text("catalog_name", "catalog"))


def compressed(content: bytes) -> bytes:
    """Compress into the pair of length and Zstandard frame that the client expects (airport §1.6).

    Raises: LimitExceeded when the content is longer than the client accepts.
    """
    if len(content) >= _LENGTH_LIMIT:
        raise LimitExceeded(
            "the catalog's description is larger than 2 GiB, which DuckDB cannot take"
        )
    frame = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).compress(content)
    return pack([len(content), frame])


@dataclass(frozen=True, slots=True)
class SchemaContents:
    """The objects of a schema as they travel inside other messages (airport §3.3).

    Without `serialized` they say nothing about the schema.
    """

    sha256: str = ""
    serialized: bytes | None = None

    def as_map(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "url": None, "serialized": self.serialized}

    def pack(self) -> bytes:
        """The answer of `create_schema`: a plain map, not compressed (airport §4.10)."""
        return pack(self.as_map())


def encode_contents(objects: Sequence[bytes]) -> SchemaContents:
    """Describe a schema with these objects, each a FlightInfo with app_metadata (airport §3.4)."""
    serialized = compressed(pack(list(objects)))
    # The hash is over the compressed form (T46).
    return SchemaContents(hashlib.sha256(serialized).hexdigest(), serialized)


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema in the answer of `list_schemas`."""

    name: str
    contents: SchemaContents
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    is_default: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise CatalogFault("the catalog has a schema without a name")


def encode_schema_list(schemas: Sequence[SchemaEntry], version: CatalogVersion) -> bytes:
    """Encode the answer of `list_schemas` (airport §3.3).

    Raises: CatalogFault when two schemas have the same name: the client would refuse them all
    (T45).
    """
    for name, count in Counter(schema.name for schema in schemas).items():
        if count > 1:
            raise CatalogFault(f"the catalog has {count} schemas called {name}")
    root = {
        # No bundle for the whole catalog: the client would keep every version on its disk forever
        # (T44).
        "contents": SchemaContents().as_map(),
        "schemas": [
            {
                "name": schema.name,
                "description": schema.description,
                "tags": dict(schema.tags),
                "contents": schema.contents.as_map(),
                "is_default": schema.is_default,
            }
            for schema in schemas
        ],
        "version_info": _version_map(version),
    }
    return compressed(pack(root))


def encode_catalog_version(version: CatalogVersion) -> bytes:
    return pack(_version_map(version))


def _version_map(version: CatalogVersion) -> dict[str, Any]:
    return {"catalog_version": version.number, "is_fixed": version.fixed}


def encode_object_metadata(
    kind: ObjectKind,
    catalog: str,
    schema: str,
    name: str,
    comment: str = "",
    input_schema: pa.Schema | None = None,
    description: str | None = None,
    stability: Stability | None = None,
) -> bytes:
    """Encode the app_metadata of an object's FlightInfo (airport §3.5).

    `catalog` is the name as ATTACH spelled it: the client compares it letter by letter. Functions
    must give their `input_schema`, even without parameters.
    """
    return pack(
        {
            "type": kind,
            "schema": schema,
            "catalog": catalog,
            "name": name,
            "comment": comment or None,
            "input_schema": None if input_schema is None else input_schema.serialize().to_pybytes(),
            "action_name": None,
            "description": description or None,
            "extra_data": None if stability is None else pack({"stability": stability.value}),
        }
    )
