"""Requests to S3 that Arrow's file system cannot make, or makes with others around them.

Arrow asks for the size of a file before it reads it. When it removes a file, it asks whether there
is one, and puts an empty object in the place of its folder. One request is enough for either.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from sparkport.spark.iceberg.aws_credentials import AwsKeys, default_keys
from sparkport.spark.iceberg.s3_settings import S3Settings

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

__all__ = ["S3Answer", "S3Requests", "S3Upload", "s3_requests"]

_MOST_KEYS = 1000
"""That S3 removes by one request."""
_FAILURES = frozenset({429, 500, 502, 503, 504})
_NOTHING = hashlib.sha256(b"").hexdigest()


class S3Answer(NamedTuple):
    """What S3 answered to a request for bytes."""

    content: bytes
    size: int
    """Of the whole object."""
    modified: float
    """When it was written, by the store's clock."""


class S3Upload(NamedTuple):
    """A multipart upload."""

    key: str
    id: str


def s3_requests(bucket: str, settings: S3Settings) -> S3Requests | None:
    """None where only Arrow can tell credentials or address."""
    if settings.role or settings.anonymous or not (settings.endpoint or settings.region):
        return None
    keys: Callable[[], AwsKeys | None] = default_keys
    if settings.access_key:
        given = AwsKeys(settings.access_key, settings.secret_key, settings.session_token)
        keys = lambda: given  # noqa: E731
    elif default_keys() is None:
        return None
    return S3Requests(bucket, settings, keys)


class S3Requests:
    """Requests to one bucket. Thread-safe; connections stay open."""

    def __init__(
        self, bucket: str, settings: S3Settings, keys: Callable[[], AwsKeys | None]
    ) -> None:
        self._bucket = bucket
        self._keys = keys
        self._region = settings.region or "us-east-1"
        base = urlsplit(settings.endpoint or f"https://s3.{self._region}.amazonaws.com")
        # A certificate for all buckets does not hold for names with dots.
        in_path = settings.path_style or (base.scheme == "https" and "." in bucket)
        self._host = base.netloc if in_path else f"{bucket}.{base.netloc}"
        self._folder = base.path.rstrip("/") + (f"/{quote(bucket)}" if in_path else "")
        self._start = f"{base.scheme}://{self._host}"
        self._pool = _pool(settings)

    def read(self, key: str, start: int = 0, length: int | None = None) -> S3Answer:
        """Read a range, or all from `start`. It is shorter where the object ends before.

        Raises: FileNotFoundError; OSError.
        """
        end = "" if length is None else start + length - 1
        headers = {"range": f"bytes={start}-{end}"} if start or length is not None else {}
        answer = self._ask("GET", key, headers=headers)
        is_outside = answer.status == 416  # nothing of the object is in the range
        if not is_outside:
            self._expect(answer, "GetObject")
        content = b"" if is_outside else answer.data
        total = answer.headers.get("content-range", "").rpartition("/")[2]
        size = int(total) if total.isdigit() else len(content)
        return S3Answer(content, size, _seconds(answer.headers.get("last-modified", "")))

    def delete(self, key: str) -> None:
        """Remove an object. One that is not there is no error. Raises: OSError."""
        answer = self._ask("DELETE", key)
        if not _is_missing(answer):
            self._expect(answer, "DeleteObject")

    def delete_all(self, keys: Sequence[str]) -> None:
        """Remove many objects, a thousand by each request. Raises: OSError."""
        for first in range(0, len(keys), _MOST_KEYS):
            objects = "".join(
                f"<Object><Key>{_in_xml(key)}</Key></Object>"
                for key in keys[first : first + _MOST_KEYS]
            )
            body = f"<Delete><Quiet>true</Quiet>{objects}</Delete>".encode()
            digest = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
            answer = self._ask("POST", "", "delete=", {"content-md5": digest}, body)
            self._expect(answer, "DeleteObjects")
            if b"<Error>" in answer.data:
                raise OSError(f"When deleting objects: {_told(answer.data, 'DeleteObjects', 200)}")

    def uploads(self, prefix: str) -> Iterator[S3Upload]:
        """Uploads that are neither completed nor aborted, of keys with this prefix.

        Raises: OSError.
        """
        after = ("", "")
        while True:
            markers = {"key-marker": after[0], "upload-id-marker": after[1]}
            query = {**(markers if after[0] else {}), "prefix": prefix, "uploads": ""}
            encoded = "&".join(
                f"{name}={quote(query[name], safe='-_.~')}" for name in sorted(query)
            )
            answer = self._ask("GET", "", encoded)
            self._expect(answer, "ListMultipartUploads")
            found = ElementTree.fromstring(answer.data)  # noqa: S314 - of the company's own store
            for each in found.iterfind("{*}Upload"):
                yield S3Upload(each.findtext("{*}Key", ""), each.findtext("{*}UploadId", ""))
            after = (
                found.findtext("{*}NextKeyMarker", ""),
                found.findtext("{*}NextUploadIdMarker", ""),
            )
            if found.findtext("{*}IsTruncated", "").lower() != "true" or not after[0]:
                return

    def abort(self, upload: S3Upload) -> None:
        """End an upload. One that has ended is no error. Raises: OSError."""
        answer = self._ask("DELETE", upload.key, f"uploadId={quote(upload.id, safe='-_.~')}")
        if not _is_missing(answer):
            self._expect(answer, "AbortMultipartUpload")

    def _expect(self, answer: BaseHTTPResponse, operation: str) -> None:
        if _is_missing(answer):
            raise FileNotFoundError("there is no such object")
        if not 200 <= answer.status < 300:
            told = _told(answer.data, operation, answer.status)
            raise OSError(f"When asking for an object in bucket '{self._bucket}': {told}")

    def _ask(
        self,
        method: str,
        key: str,
        query: str = "",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> BaseHTTPResponse:
        from urllib3.exceptions import HTTPError

        path = f"{self._folder}/{quote(key, safe='/-_.~')}"
        signed = self._signed(method, path, query, headers or {}, body)
        url = f"{self._start}{path}{f'?{query}' if query else ''}"
        try:
            return self._pool.urlopen(method, url, headers=signed, body=body or None)
        except HTTPError as error:
            raise OSError(_unreachable(error, self._bucket)) from error

    def _signed(
        self, method: str, path: str, query: str, headers: dict[str, str], body: bytes
    ) -> dict[str, str]:
        """The headers with a signature: AWS Signature Version 4."""
        keys = self._keys()
        if keys is None:
            raise OSError("the credentials of AWS are gone: the place that gave them has none now")
        moment = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest() if body else _NOTHING
        every = {**headers, "host": self._host, "x-amz-content-sha256": digest}
        every["x-amz-date"] = moment
        if keys.token:
            every["x-amz-security-token"] = keys.token
        names = ";".join(sorted(every))
        lines = "".join(f"{name}:{every[name]}\n" for name in sorted(every))
        request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{digest}"
        scope = f"{moment[:8]}/{self._region}/s3/aws4_request"
        hashed = hashlib.sha256(request.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashed}"
        key = f"AWS4{keys.secret}".encode()
        for piece in (moment[:8], self._region, "s3", "aws4_request", text):
            key = hmac.new(key, piece.encode(), hashlib.sha256).digest()
        every["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, SignedHeaders={names}, "
            f"Signature={key.hex()}"
        )
        return every


def _pool(settings: S3Settings) -> PoolManager:
    from urllib3 import PoolManager, ProxyManager, Retry, Timeout

    retries = Retry(
        total=settings.attempts - 1,
        status_forcelist=_FAILURES,
        allowed_methods=None,
        redirect=False,
        backoff_factor=0.5,  # with the usual attempts, some 15 s in all, as Arrow
        backoff_max=10,
        backoff_jitter=0.2,
        raise_on_status=False,
    )
    options = {
        "retries": retries,
        "timeout": Timeout(connect=settings.connect_seconds, read=settings.request_seconds),
        "maxsize": 32,
        **({"ca_certs": settings.ca_file} if settings.ca_file else {}),
    }
    if settings.proxy:
        return ProxyManager(settings.proxy, **options)  # type: ignore[arg-type]
    return PoolManager(**options)  # type: ignore[arg-type]


def _is_missing(answer: BaseHTTPResponse) -> bool:
    """Whether it is the object that is missing, and not the bucket, or whoever asks."""
    return answer.status == 404 and _code(answer.data) in ("NoSuchKey", "NoSuchVersion", "")


def _seconds(date: str) -> float:
    return parsedate_to_datetime(date).timestamp() if date else 0.0


def _code(body: bytes) -> str:
    found = re.search(rb"<Code>(\w+)</Code>", body)
    return found[1].decode() if found else ""


def _told(body: bytes, operation: str, status: int) -> str:
    """What S3 says is wrong, in Arrow's words."""
    code = _code(body) or "UNKNOWN"
    return f"AWS Error {code} (HTTP status {status}) during {operation} operation"


def _unreachable(error: Exception, bucket: str) -> str:
    """One sentence for errors of connections, whose texts have addresses of objects in memory."""
    is_distrust = "CERTIFICATE_VERIFY_FAILED" in str(error)
    kind = "SSL certificate problem" if is_distrust else "NETWORK_CONNECTION"
    return f"When asking for an object in bucket '{bucket}': AWS Error {kind}"


def _in_xml(key: str) -> str:
    return escape(key, {"\r": "&#13;", "\n": "&#10;"})
