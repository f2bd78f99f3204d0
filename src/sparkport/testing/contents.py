"""How the objects of a schema are delivered: compressed, hashed, bundled (airport §1.6, §3.4)."""

from __future__ import annotations

import hashlib
import io
import urllib.request
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import zstandard

from sparkport.testing.failures import ProtocolViolation
from sparkport.testing.replies import Fields, as_bytes, as_text, unpack

__all__ = ["ContentsMap", "DiskCache", "decompressed", "flight_info", "objects"]


def decompressed(body: bytes, where: str) -> bytes:
    """Return the content of a `compressed(x)` pair."""
    return _decompressed_pair(unpack(body, where, "T46"), where)


def _decompressed_pair(pair: Any, where: str) -> bytes:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ProtocolViolation("T46", f"{where}: an array [length, data] is due")
    length, data = pair[0], as_bytes(pair[1], f"{where}: data", "T46")
    if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length < 2**31:
        raise ProtocolViolation(
            "§1.6", f"{where}: the length is {length!r}, not an integer below 2^31"
        )
    try:
        with zstandard.ZstdDecompressor().stream_reader(
            io.BytesIO(data), read_across_frames=True
        ) as reader:
            content = reader.read(length + 1)
    except zstandard.ZstdError as error:
        raise ProtocolViolation("§1.6", f"{where}: not a Zstandard frame: {error}") from error
    if len(content) != length:
        raise ProtocolViolation(
            "§1.6",
            f"{where}: the length is given as {length}, the data have {_size(content, length)} "
            "bytes",
        )
    return content


def _size(content: bytes, length: int) -> str:
    return str(len(content)) if len(content) <= length else "more"


def objects(serialized: bytes, where: str) -> list[flight.FlightInfo]:
    """Return the FlightInfos of `compressed(objects)`."""
    array = unpack(decompressed(serialized, where), where)
    if not isinstance(array, list):
        raise ProtocolViolation("§3.4", f"{where}: the objects are not an array")
    return [flight_info(as_bytes(element, where), where) for element in array]


def flight_info(body: bytes, where: str) -> flight.FlightInfo:
    """Deserialise a FlightInfo."""
    try:
        info = flight.FlightInfo.deserialize(body)
    except (pa.ArrowException, OSError) as error:
        raise ProtocolViolation("§1.5", f"{where}: not a serialised FlightInfo: {error}") from error
    return info


@dataclass(frozen=True, slots=True)
class ContentsMap:
    """A contents map (airport §3.3)."""

    sha256: str
    url: str | None
    serialized: bytes | None

    @classmethod
    def read(cls, fields: Fields) -> ContentsMap:
        contents = cls(
            fields.text("sha256"), fields.optional_text("url"), fields.optional_bytes("serialized")
        )
        if contents.sha256 and not _is_hash(contents.sha256):
            raise ProtocolViolation(
                "T46",
                f"{fields.where}: sha256 is not 64 lower-case hexadecimal digits: "
                f"{contents.sha256!r}",
            )
        return contents

    @property
    def by_list_flights(self) -> bool:
        return not self.sha256 and self.url is None and self.serialized is None

    def load(self, cache: DiskCache, where: str, timeout: float) -> bytes:
        """Return the bytes of `compressed(objects)`, inline, cached or by URL (airport §3.4)."""
        if self.serialized is not None:
            if not self.sha256 or _hash(self.serialized) == self.sha256:
                return self.serialized
            if self.url is None:
                raise ProtocolViolation(
                    "T46",
                    f"{where}: sha256 does not match; it is taken over the packed, compressed pair",
                )
        elif (cached := cache.get(self.sha256)) is not None:
            return cached
        if self.url is None:
            raise ProtocolViolation(
                "§3.4", f"{where}: {self.sha256} is not in the client's cache, and there is no url"
            )
        if not self.sha256:
            raise ProtocolViolation(
                "T43", f"{where}: a url without sha256 is downloaded and discarded"
            )
        return self._download(cache, where, timeout)

    def _download(self, cache: DiskCache, where: str, timeout: float) -> bytes:
        assert self.url is not None
        try:
            with urllib.request.urlopen(self.url, timeout=timeout) as response:
                body: bytes = response.read()
        except (OSError, ValueError) as error:
            raise ProtocolViolation(
                "§3.4", f"{where}: {self.url} cannot be downloaded: {error}"
            ) from error
        if _hash(body) != self.sha256:
            raise ProtocolViolation("T46", f"{where}: sha256 does not match what {self.url} gives")
        cache.put(self.sha256, body)
        return body


class DiskCache:
    """The client's ~/.duckdb/airport_cache, here in memory and for a single client."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    def get(self, sha256: str) -> bytes | None:
        return self._bodies.get(sha256)

    def put(self, sha256: str, body: bytes) -> None:
        self._bodies[sha256] = body

    def fill(self, bundle: ContentsMap, where: str, timeout: float) -> None:
        """Add the objects of the catalog-level bundle (airport §3.4, end)."""
        if not bundle.sha256 or (bundle.serialized is None and bundle.url is None):
            return
        elements = unpack(bundle.load(self, where, timeout), where)
        if not isinstance(elements, list):
            raise ProtocolViolation("§3.4", f"{where}: the bundle is not an array")
        for element in elements:
            if not isinstance(element, list) or len(element) != 2:
                raise ProtocolViolation(
                    "§3.4", f"{where}: an element of the bundle is not [sha256, contents]"
                )
            sha256, body = as_text(element[0], where), as_bytes(element[1], where)
            if _hash(body) != sha256:
                raise ProtocolViolation("T46", f"{where}: a hash inside the bundle does not match")
            self.put(sha256, body)


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _is_hash(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")
