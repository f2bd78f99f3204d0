"""Requests to an Iceberg REST catalog, and what their failures mean.

A request that only reads is repeated a few times. Any other is repeated only when it was not made:
it was not sent, its token was not accepted, or the server was not ready (429, 503).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import requests
from requests.adapters import HTTPAdapter

from sparkport.errors import BadRequest, CatalogFault
from sparkport.lines import one_line
from sparkport.spark.lake.rest_auth import Tokens, authentication

__all__ = ["Answer", "RestClient", "RestFault"]

_ATTEMPTS = 4
_PAUSE = 0.1
"""Seconds before the second attempt; each further pause is twice as long."""
_LONGEST_PAUSE = 5.0
_NOT_READY = (429, 503)
_AT_A_LOSS = (500, 502, 504, *_NOT_READY)
"""Codes after which a request that reads is sent again."""
_NOT_ACCEPTED = (401, 419)
_MOST_CONNECTIONS = 32
_LONGEST_SAID = 300
_LOOK = "look whether the change was made before you try again"


class RestFault(CatalogFault):
    """A request that has failed."""

    def __init__(self, message: str, status: int = 0, *, sent: int = 1) -> None:
        """`status` is 0 without an answer; `sent` is how often the server may have seen it."""
        super().__init__(message)
        self.status = status
        self.sent = sent

    @property
    def is_refusal(self) -> bool:
        """Whether the request was certainly not carried out, and will not be."""
        if not self.status:
            return not self.sent
        return 300 <= self.status < 500 or self.status in (501, *_NOT_READY)

    @property
    def is_passing(self) -> bool:
        """Whether the server, or the way to it, is in trouble, whatever the request was."""
        return self.status in (0, 502, 504, *_NOT_READY)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server has answered."""

    status: int
    body: Any
    """JSON; None without any."""
    etag: str | None = None


class RestClient:
    """A REST catalog. Thread-safe. Nothing is sent before the first request."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        """`name` is the lake's, for messages. Raises: BadRequest, Unsupported."""
        self._name = name
        self._uri = options.get("uri", "").rstrip("/")
        if not self._uri.startswith(("http://", "https://")):
            raise BadRequest(
                f"the REST catalog of lake {name} has no address: set catalog_uri, for instance "
                "https://HOST/PATH"
            )
        self._given = options
        self._lock = threading.Lock()
        self._settings: Mapping[str, str] | None = None
        self._endpoints: frozenset[str] = frozenset()
        self._session = requests.Session()
        self._session.auth = self._auth = authentication(name, self._uri, options)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=_MOST_CONNECTIONS))
        self._timeouts = (
            float(options.get("rest.client.connection-timeout-ms", 10_000)) / 1000,
            float(options.get("rest.client.socket-timeout-ms", 60_000)) / 1000,
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """The options, with the server's defaults under them and its overrides over them.

        Raises: RestFault.
        """
        with self._lock:
            if self._settings is None:
                warehouse = self._given.get("warehouse")
                body = self._sent(
                    "GET",
                    f"{self._uri}/v1/config",
                    params={"warehouse": warehouse} if warehouse else {},
                ).body
                self._endpoints = frozenset(body.get("endpoints") or ())
                self._settings = {
                    **(body.get("defaults") or {}),
                    **self._given,
                    **(body.get("overrides") or {}),
                }
            return self._settings

    def offers(self, endpoint: str) -> bool:
        """Whether the server says that it has an endpoint, such as `GET /v1/{prefix}/namespaces`.

        Raises: RestFault.
        """
        return bool(self.settings) and endpoint in self._endpoints

    def close(self) -> None:
        """Close idle connections."""
        self._session.close()

    def call(
        self,
        method: str,
        *path: str | tuple[str, ...],
        params: Mapping[str, str] | None = None,
        body: Any = None,
        etag: str | None = None,
    ) -> Answer:
        """Send a request. The parts of the path are names; a namespace is a tuple.

        Raises: RestFault for any answer but 2xx and 304, and for none.
        """
        settings = self.settings
        names = [self._joined(each if isinstance(each, tuple) else (each,)) for each in path]
        prefix = settings.get("prefix", "").strip("/")
        uri = settings["uri"].rstrip("/")
        address = "/".join([uri, "v1", *([prefix] if prefix else []), *names])
        headers = {"X-Iceberg-Access-Delegation": "vended-credentials"}
        if etag is not None:
            headers["If-None-Match"] = etag
        return self._sent(method, address, params=params or {}, body=body, headers=headers)

    def pages(
        self, field: str, *path: str | tuple[str, ...], parent: tuple[str, ...] = ()
    ) -> Iterator[Any]:
        """The items of a list, however many answers the server needs. Raises: RestFault."""
        size = self.settings.get("rest-page-size")
        params = {"pageToken": "", **({"pageSize": size} if size else {})}
        if parent:
            params["parent"] = unquote(self._separator).join(parent)
        while True:
            body = self.call("GET", *path, params=params).body
            yield from body.get(field) or ()
            following = body.get("next-page-token")
            if not following:
                return
            params["pageToken"] = str(following)

    @property
    def _separator(self) -> str:
        """What is between the parts of a namespace, in the form that addresses have."""
        return self.settings.get("namespace-separator") or "%1F"

    def _joined(self, names: tuple[str, ...]) -> str:
        return self._separator.join(quote(each, safe="") for each in names)

    # ------------------------------------------------------------------------------------- sending

    def _sent(
        self,
        method: str,
        address: str,
        *,
        params: Mapping[str, str],
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent, pause, is_renewed = 0, _PAUSE, False
        for attempts_left in reversed(range(_ATTEMPTS)):
            wait = pause
            try:
                answer = self._asked(method, address, params, body, headers or {})
                if answer.status_code in _NOT_ACCEPTED and not is_renewed and self._renew(answer):
                    is_renewed = True
                    answer = self._asked(method, address, params, body, headers or {})
            except requests.RequestException as error:
                sent += _is_sent(error)
                is_open = method != "GET" and sent > 0
                fault = RestFault(self._silence(error, is_open), sent=sent)
                fault.__cause__ = error
                is_tried_again = method == "GET" or not sent
            else:
                if answer.status_code < 300 or answer.status_code == 304:
                    return self._read(answer)
                sent += 1
                fault = RestFault(self._complaint(answer), answer.status_code, sent=sent)
                if method != "GET" and not fault.is_refusal:
                    fault = RestFault(f"{fault.message}: {_LOOK}", fault.status, sent=sent)
                again = _AT_A_LOSS if method == "GET" else _NOT_READY
                is_tried_again = answer.status_code in again
                wait = _told(answer, pause)
            if not (is_tried_again and attempts_left):
                raise fault
            time.sleep(min(wait, _LONGEST_PAUSE))
            pause *= 2
        raise AssertionError

    def _asked(
        self,
        method: str,
        address: str,
        params: Mapping[str, str],
        body: Any,
        headers: Mapping[str, str],
    ) -> requests.Response:
        settings = self._given if self._settings is None else self._settings
        own = {
            key.removeprefix("header."): value
            for key, value in settings.items()
            if key.startswith("header.")
        }
        return self._session.request(
            method,
            address,
            params=params,
            json=body,
            headers={**own, **headers},
            timeout=self._timeouts,
            allow_redirects=method == "GET",
        )

    def _renew(self, answer: requests.Response) -> bool:
        auth = self._auth
        refused = answer.request.headers.get("Authorization")
        return isinstance(auth, Tokens) and auth.renewed(None if refused is None else str(refused))

    def _read(self, answer: requests.Response) -> Answer:
        try:
            body = answer.json() if answer.content else None
        except ValueError as error:
            raise RestFault(
                f"the REST catalog of lake {self._name} answers with something else than JSON: "
                "check catalog_uri"
            ) from error
        return Answer(answer.status_code, body, answer.headers.get("ETag"))

    def _silence(self, error: requests.RequestException, is_open: bool) -> str:
        if isinstance(error, requests.exceptions.SSLError):
            return (
                f"the certificate of the REST catalog of lake {self._name} is not trusted: name "
                "the file of your authority's certificates with REQUESTS_CA_BUNDLE"
            )
        if isinstance(error, requests.Timeout):
            said, advice = "has not answered in time", "try again"
        else:
            said, advice = "cannot be reached", "check catalog_uri, or try again"
        return f"the REST catalog of lake {self._name} {said}: {_LOOK if is_open else advice}"

    def _complaint(self, answer: requests.Response) -> str:
        status = answer.status_code
        if status in _NOT_ACCEPTED:
            return (
                f"the REST catalog of lake {self._name} does not accept its credentials: check "
                "credential or token"
            )
        try:
            said = str(answer.json()["error"]["message"])
        except (ValueError, LookupError, TypeError):
            said = str(answer.reason)
        verb = "does not allow this" if status == 403 else f"answered {status}"
        return f"the REST catalog of lake {self._name} {verb}: {one_line(said)[:_LONGEST_SAID]}"


def _is_sent(error: requests.RequestException) -> bool:
    """Whether the server may have got a request."""
    if isinstance(error, requests.exceptions.SSLError | requests.exceptions.ProxyError):
        return False
    if isinstance(error, requests.ConnectTimeout):
        return False
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return type(reason).__name__ not in ("NewConnectionError", "NameResolutionError")


def _told(answer: requests.Response, otherwise: float) -> float:
    """How long the server wants to be left alone."""
    try:
        return max(float(answer.headers["Retry-After"]), otherwise)
    except (KeyError, ValueError):
        return otherwise
