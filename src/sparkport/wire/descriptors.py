"""Descriptors: the handles under which the client knows tables and functions (airport §3.7).

Ours are paths, `sparkport/catalog/schema/kind/name/fingerprint/signature`, each element
percent-encoded: the client copies them into a header, where DuckDB's process aborts on anything but
printable ASCII (T3). The signature proves that this server handed the descriptor out. Where callers
authenticate, the descriptor also says to which of them. Other clients may name a table by `[schema,
table]` or `[catalog, schema, table]`, in plain text.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import Identity, find_rowid_column
from sparkport.errors import BadRequest, NotFound, SparkportError
from sparkport.wire.bearers import bearer_of_text, bearer_text
from sparkport.wire.catalogs import ObjectKind
from sparkport.wire.signing import Signer

__all__ = [
    "DATABASES",
    "ObjectPath",
    "bearer_in_header",
    "decode_path",
    "encode_path",
    "fingerprint",
    "is_handle",
]

DATABASES = "__databases"
"""The path under which the client's `airport_databases` asks for the catalogs (airport §11)."""

_MARK = "sparkport"
_KINDS: frozenset[str] = frozenset({"table", "scalar_function", "table_function"})
_PURPOSE = "descriptor"
_BEARER = "@"
"""The first character of the bearer; in all other elements it is percent-encoded."""


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """Which object a descriptor means.

    `catalog` None is the server's default catalog. `fingerprint` is the fingerprint of the Arrow
    schema that the client has seen; empty in plain descriptors. `signed` says that this server
    handed the descriptor out.
    """

    catalog: str | None
    schema: str
    kind: ObjectKind
    name: str
    fingerprint: str = ""
    signed: bool = False
    attached_as: str | None = None
    """The catalog's name in ATTACH, where it differs: the client compares answers with it (T9)."""
    bearer: Identity | None = None
    """The identity that a signed descriptor was handed out to."""


def encode_path(path: ObjectPath, signer: Signer) -> flight.FlightDescriptor:
    """Encode a signed descriptor."""
    names = [path.catalog or "", path.schema, path.kind, path.name, path.fingerprint]
    if path.attached_as is not None and path.attached_as != path.catalog:
        names.append(path.attached_as)
    elements = [_MARK, *(quote(name, safe="") for name in names)]
    if path.bearer is not None:
        elements.append(_BEARER + bearer_text(path.bearer))
    return flight.FlightDescriptor.for_path(*elements, _signature(elements, signer))


def decode_path(descriptor: flight.FlightDescriptor, signer: Signer) -> ObjectPath:
    """Decode a descriptor, signed or plain.

    Raises: BadRequest for a descriptor that is forged, altered, foreign, or of no known form.
    """
    if descriptor.descriptor_type != flight.DescriptorType.PATH:
        raise BadRequest(
            "the descriptor must be a path: [schema, table] or [catalog, schema, table]"
        )
    try:
        elements = [element.decode() for element in descriptor.path]
    except UnicodeDecodeError as error:
        raise BadRequest("the descriptor's path is not UTF-8 text") from error
    match elements:
        case [mark, _, _, _, _, _, *_, _] if mark == _MARK:
            return _decode_signed(tuple(elements), signer)
        case [catalog, schema, name]:
            return ObjectPath(catalog, schema, "table", name)
        case [schema, name]:
            return ObjectPath(None, schema, "table", name)
        case [name]:
            raise NotFound(
                f"there is no flight {_shortened(name)}; name a table as [schema, table]"
            )
    raise BadRequest("the descriptor's path must be [schema, table] or [catalog, schema, table]")


@lru_cache(maxsize=1024)  # every statement on a table sends the same handle, perhaps twice
def _decode_signed(elements: tuple[str, ...], signer: Signer) -> ObjectPath:
    *signed, signature = elements
    if not hmac.compare_digest(signature.encode(), _signature(signed, signer).encode()):
        raise BadRequest(
            "this table handle was not made by the running server, or was altered: DETACH "
            "the catalog and ATTACH it again"
        )
    _, catalog, schema, kind, name, fingerprint_, *others = signed
    bearer = bearer_of_text(others.pop()[1:]) if others and others[-1].startswith(_BEARER) else None
    return ObjectPath(
        unquote(catalog),
        unquote(schema),
        _kind(kind),
        unquote(name),
        unquote(fingerprint_),
        signed=True,
        attached_as=unquote(others[0]) if others else None,
        bearer=bearer,
    )


def bearer_in_header(text: str, signer: Signer) -> Identity | None:
    """Return the bearer of a descriptor that a client copied into a header; None for other text."""
    if not text.startswith(f"{_MARK}/"):
        return None
    try:  # the elements of a signed descriptor hold no slash
        return decode_path(flight.FlightDescriptor.for_path(*text.split("/")), signer).bearer
    except SparkportError:
        return None


def is_handle(descriptor: flight.FlightDescriptor) -> bool:
    """Whether the descriptor begins like a signed descriptor."""
    return bool(
        descriptor.descriptor_type == flight.DescriptorType.PATH
        and (descriptor.path or [b""])[0] == _MARK.encode()
    )


def fingerprint(arrow_schema: pa.Schema) -> str:
    """Digest what a client must know to read columns by position: names, types, and the row id.

    Comments, defaults and nullability are left out: a client that knows outdated values of these
    still reads correctly.
    """
    rowid = find_rowid_column(arrow_schema)
    bare = pa.schema([pa.field(field.name, field.type) for field in arrow_schema])
    return hashlib.sha256(bare.serialize().to_pybytes() + str(rowid).encode()).hexdigest()[:16]


def _signature(elements: list[str], signer: Signer) -> str:
    return signer.signature(_PURPOSE, *(element.encode() for element in elements)).hex()


def _kind(text: str) -> ObjectKind:
    if text not in _KINDS:
        raise BadRequest("the descriptor names no known kind of object")
    return text  # type: ignore[return-value]  # checked above


def _shortened(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:60] + "…")
