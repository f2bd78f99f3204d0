"""How a REST catalog is told who asks: not at all, with a password, or with a token (OAuth2).

A token is fetched with client credentials, and again before it expires or when the catalog does not
accept it any more. Options have Iceberg's names.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from sparkport.errors import BadRequest, CatalogFault, Unsupported

__all__ = ["Anonymous", "Tokens", "authentication"]

_MARGIN = 0.1
"""The part of a token's life that is left when another is fetched."""
_PASSED_ON = ("audience", "resource")
_SECONDS = (10.0, 30.0)
"""How long to wait for a connection and for an answer."""


def authentication(name: str, uri: str, options: Mapping[str, str]) -> AuthBase:
    """What marks each request with who asks. Raises: BadRequest, Unsupported."""
    has_token = "token" in options or "credential" in options
    kind = options.get("rest.auth.type", "oauth2" if has_token else "none").lower()
    if options.get("rest.sigv4-enabled", "").lower() == "true":
        kind = "sigv4"
    if kind == "none":
        return Anonymous()
    if kind == "basic":
        user, password = (options.get(f"rest.auth.basic.{key}") for key in ("username", "password"))
        if not user or password is None:
            raise BadRequest(
                f"the REST catalog of lake {name} wants a password: set rest.auth.basic.username "
                "and rest.auth.basic.password"
            )
        return HTTPBasicAuth(user.encode(), password.encode())
    if kind != "oauth2":
        raise Unsupported(
            f"the REST catalog of lake {name} has rest.auth.type {kind}, which only Spark knows: "
            "set catalog to spark, with the same options"
        )
    return Tokens(name, uri, options)


class Anonymous(AuthBase):
    """Nobody. Without it, passwords of ~/.netrc would be sent."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


class Tokens(AuthBase):
    """Bearer tokens: the given one, or those that client credentials buy. Thread-safe."""

    def __init__(self, name: str, uri: str, options: Mapping[str, str]) -> None:
        self._name = name
        self._uri = options.get("oauth2-server-uri") or f"{uri}/v1/oauth/tokens"
        self._credential = options.get("credential")
        self._lock = threading.Lock()
        self._token = options.get("token")
        self._renewed_at = float("inf")
        wanted = {"scope": options.get("scope", "catalog")}
        self._wanted = wanted | {key: options[key] for key in _PASSED_ON if key in options}
        if not self._token and not self._credential:
            raise BadRequest(
                f"the REST catalog of lake {name} wants a token: set token, or credential as "
                "ID:SECRET"
            )

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Raises: CatalogFault when no token can be had."""
        request.headers["Authorization"] = f"Bearer {self.current()}"
        return request

    def current(self) -> str:
        """A token that is valid as far as is known. Raises: CatalogFault."""
        with self._lock:
            if self._token is None or (self._credential and time.monotonic() >= self._renewed_at):
                self._fetch()
            assert self._token is not None
            return self._token

    def renewed(self, refused: str | None) -> bool:
        """Replace a token that the catalog has not accepted; whether there is another.

        Raises: CatalogFault when none can be had.
        """
        with self._lock:
            if self._token is not None and refused == f"Bearer {self._token}":
                if self._credential is None:
                    return False
                self._fetch()
            return True

    def _fetch(self) -> None:
        identity, colon, secret = (self._credential or "").partition(":")
        form = {"grant_type": "client_credentials", **self._wanted}
        form |= (
            {"client_id": identity, "client_secret": secret}
            if colon
            else {"client_secret": identity}
        )
        begun = time.monotonic()
        try:
            answer = requests.post(self._uri, data=form, auth=Anonymous(), timeout=_SECONDS)
            said: Any = answer.json() if answer.content else {}
        except (requests.RequestException, ValueError) as error:
            raise CatalogFault(
                f"no token can be had for the REST catalog of lake {self._name}: its OAuth2 server "
                "does not answer; check oauth2-server-uri, or try again"
            ) from error
        if not answer.ok or not isinstance(said, dict) or not said.get("access_token"):
            raise CatalogFault(
                f"no token can be had for the REST catalog of lake {self._name}: its OAuth2 server "
                f"answered {answer.status_code}; check credential, scope and oauth2-server-uri"
            )
        self._token = str(said["access_token"])
        seconds = said.get("expires_in")
        life = float(seconds) if isinstance(seconds, int | float) else float("inf")
        self._renewed_at = begun + life * (1 - _MARGIN)
