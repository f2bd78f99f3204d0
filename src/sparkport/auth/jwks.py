"""The public keys of an OpenID provider, fetched over HTTPS and cached."""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlsplit

from sparkport.auth.loopback import is_loopback
from sparkport.errors import BadRequest, PreconditionFailed, Unauthenticated

__all__ = ["KeySet", "PublicKey"]

_log = logging.getLogger(__name__)

_MOST_BYTES = 1024 * 1024
_FETCH_SECONDS = 5.0
_LEAST_RSA_BITS = 2048
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ELLIPTIC = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key and the algorithms of its signatures, never HMAC with the key as its secret."""

    kid: str | None
    key: Any
    algorithms: tuple[str, ...]


class KeySet:
    """The keys at an address. Thread-safe.

    They are fetched for the first token, every `refresh_seconds` in the background, and when a
    token names an unknown key, but at most once in `retry_seconds`. While the provider does not
    answer, old keys are valid for `stale_seconds`. After that, or before the first answer, no
    caller is admitted.
    """

    def __init__(
        self,
        url: str,
        *,
        allow_http: bool = False,
        refresh_seconds: float = 300.0,
        retry_seconds: float = 10.0,
        stale_seconds: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember the address; nothing is fetched yet.

        Raises: BadRequest for an address that keys must not come from; PreconditionFailed without
        PyJWT.
        """
        try:
            import cryptography  # noqa: F401 - PyJWT needs it for all algorithms that are used here
            import jwt  # noqa: F401 - better now than at the first token
        except ImportError as error:
            raise PreconditionFailed(
                "tokens of an OpenID provider need PyJWT: pip install 'sparkport[jwt]'"
            ) from error
        if not _trustworthy(url, allow_http):
            raise BadRequest(
                f"keys must be fetched from an address that begins with https://, not from {url!r}"
            )
        self._url = url
        self._opener = urllib.request.build_opener(_Redirects(allow_http))
        self._refresh_seconds = refresh_seconds
        self._retry_seconds = retry_seconds
        self._stale_seconds = stale_seconds
        self._clock = clock
        self._fetching = threading.Lock()
        self._starting = threading.Lock()
        self._background: threading.Thread | None = None
        self._keys: tuple[PublicKey, ...] = ()
        self._fetched: float | None = None
        self._tried: float | None = None

    def candidates(self, kid: str | None) -> Sequence[PublicKey]:
        """Return the keys that may have signed a token with this `kid`; None means any key.

        Raises: Unauthenticated while there are no keys that can be trusted.
        """
        found = self._known(kid)
        if not found:
            self._fetch_unless_tried()
            found = self._known(kid)
        elif self._age() > self._refresh_seconds and not self._tried_lately():
            self._fetch_in_background()
        if self._fetched is None or self._age() > self._stale_seconds:
            raise Unauthenticated(
                "the keys by which tokens are checked cannot be had at the moment: try again later"
            )
        return found

    def fetch(self) -> Sequence[PublicKey]:
        """Fetch the keys now. Raises: PreconditionFailed when that fails."""
        self._tried = self._clock()
        try:
            with self._opener.open(self._url, timeout=_FETCH_SECONDS) as answer:
                body = answer.read(_MOST_BYTES + 1)
            if len(body) > _MOST_BYTES:
                raise ValueError("more than a megabyte")
            keys = _keys(json.loads(body))
        except (OSError, ValueError, http.client.HTTPException) as error:
            # As text: a local name for the error would keep its socket open in a cycle.
            reason = str(getattr(error, "reason", None) or error)
            raise PreconditionFailed(
                f"the keys at {self._url} cannot be fetched: {reason}"
            ) from error
        if not keys:
            raise PreconditionFailed(
                f"among the keys at {self._url} there is none for RSA, ECDSA or EdDSA signatures"
            )
        self._keys, self._fetched = keys, self._clock()
        return keys

    def _known(self, kid: str | None) -> list[PublicKey]:
        if self._fetched is None or self._age() > self._stale_seconds:
            return []
        return [each for each in self._keys if kid is None or each.kid == kid]

    def _fetch_unless_tried(self) -> None:
        """Fetch the keys. Threads that arrive meanwhile wait, and do not fetch again."""
        with self._fetching:
            if self._tried_lately():
                return
            try:
                self.fetch()
            except PreconditionFailed as error:
                _log.warning("%s", error.message)

    def _fetch_in_background(self) -> None:
        """Start a thread that fetches the keys, unless it runs already."""
        with self._starting:
            if self._background is None or not self._background.is_alive():
                self._background = threading.Thread(
                    target=self._fetch_unless_tried, name="sparkport-jwks", daemon=True
                )
                self._background.start()

    def _tried_lately(self) -> bool:
        return self._tried is not None and self._clock() - self._tried < self._retry_seconds

    def _age(self) -> float:
        return float("inf") if self._fetched is None else self._clock() - self._fetched


def _keys(document: Any) -> tuple[PublicKey, ...]:
    """Return the keys of a JWKS that can verify signatures; other keys are skipped."""
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError("it is no JWKS")
    found = [_key(each) for each in document["keys"] if isinstance(each, dict)]
    return tuple(each for each in found if each is not None)


def _key(values: Mapping[str, Any]) -> PublicKey | None:
    import jwt

    algorithms = _algorithms(values)
    if not algorithms or values.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(dict(values), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        _log.warning("a key of the provider cannot be used: %s", error)
        return None
    if values.get("kty") == "RSA" and key.key_size < _LEAST_RSA_BITS:
        _log.warning("a key of the provider is too short to be used")
        return None
    if "private" in type(key).__name__.lower():  # it is public now: anybody can sign with it
        _log.error("the provider publishes a private key, which is not used")
        return None
    kid = values.get("kid")
    return PublicKey(kid if isinstance(kid, str) else None, key, algorithms)


def _algorithms(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the algorithms that suit the key's type; only its own, if it names one."""
    kind, curve = values.get("kty"), str(values.get("crv"))
    if kind == "RSA":
        fitting: tuple[str, ...] = _RSA
    elif kind == "EC":
        fitting = _ELLIPTIC.get(curve, ())
    else:
        fitting = ("EdDSA",) if kind == "OKP" and curve in ("Ed25519", "Ed448") else ()
    named = values.get("alg")
    return fitting if named is None else tuple(each for each in fitting if each == named)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to addresses that the keys may come from."""

    def __init__(self, allow_http: bool) -> None:
        self._allow_http = allow_http

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not _trustworthy(newurl, self._allow_http):
            raise ValueError(f"it redirects to {newurl!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _trustworthy(url: str, allow_http: bool) -> bool:
    """Whether keys may come from there: a third party must not change them in transit."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme == "https" and parts.hostname:
        return True
    return (
        parts.scheme == "http"
        and bool(parts.hostname)
        and (allow_http or is_loopback(parts.hostname or ""))
    )
