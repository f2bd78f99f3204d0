"""Tokens of an OpenID provider: JWTs, verified with the keys that it publishes (JWKS)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sparkport.auth.jwks import KeySet
from sparkport.catalog import Identity
from sparkport.errors import BadRequest, Unauthenticated

__all__ = ["JWTAuthenticator"]

_log = logging.getLogger(__name__)

_LEEWAY = 30.0
"""Seconds by which the provider's clock and ours may differ."""
_LONGEST = 16 * 1024
_NOT_IN_NAMES = re.compile(r"\W")
"""Row filters know the claim `address.country` as $address_country."""


class JWTAuthenticator:
    """Authenticates by signed tokens of an issuer for an audience. Thread-safe.

    Keys are fetched at the first token, then regularly, and when a token names an unknown key.
    Signatures may be RSA, ECDSA or EdDSA. `none` is refused, and so is HMAC with a public key as
    its secret.
    """

    def __init__(
        self,
        jwks_url: str,
        issuer: str,
        audience: str,
        *,
        principal_claim: str = "sub",
        groups_claim: str = "groups",
        attributes: Sequence[str] = (),
        keys: KeySet | None = None,
        leeway: float = _LEEWAY,
    ) -> None:
        """Take the claims' names and the provider's addresses; nothing is fetched yet.

        Raises: BadRequest for an unusable address, issuer or audience; PreconditionFailed without
        PyJWT.
        """
        if not issuer or not audience:
            raise BadRequest(
                "tokens of an OpenID provider need jwt_issuer and jwt_audience: else those for "
                "other services would be good here, too"
            )
        self._keys = keys or KeySet(jwks_url)
        self._issuer = issuer
        self._audience = audience
        self._principal_claim = principal_claim
        self._groups_claim = groups_claim
        self._attributes = tuple(attributes)
        self._leeway = leeway

    @property
    def keys(self) -> KeySet:
        """The provider's keys."""
        return self._keys

    def __call__(self, token: str) -> Identity | None:
        import jwt

        if token.count(".") != 2 or len(token) > _LONGEST:
            return None  # not a JWT
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None
        kid = header.get("kid")
        claims = None
        for key in self._keys.candidates(kid if isinstance(kid, str) else None):
            if header.get("alg") in key.algorithms:
                claims = self._claims(token, key.key, key.algorithms)
                if claims is not None:
                    break
        return None if claims is None else self._identity(claims)

    def _claims(self, token: str, key: Any, algorithms: Sequence[str]) -> Mapping[str, Any] | None:
        """Return the claims, if this key has signed the token and they are valid."""
        import jwt

        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(algorithms),
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidSignatureError:
            return None
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("this token has expired: get a new one") from None
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
            raise Unauthenticated(
                "this token is for another service, or from another issuer"
            ) from None
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            _log.info("a signed token was refused: %s", type(error).__name__)
            return None
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> Identity | None:
        name = _claim(claims, self._principal_claim)
        if not isinstance(name, str) or not name or name == "*" or name.startswith("group:"):
            _log.warning(
                "a token is valid, but its claim %s names no principal", self._principal_claim
            )
            return None
        attributes = {
            _NOT_IN_NAMES.sub("_", each): value
            for each in self._attributes
            if (value := _texts(_claim(claims, each))) is not None
        }
        groups = _texts(_claim(claims, self._groups_claim))
        return Identity(
            name,
            frozenset((groups,) if isinstance(groups, str) else groups or ()),
            attributes,
            float(claims["exp"]),
        )


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Look a claim up by its name, or by its path through others, such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(value: object) -> str | tuple[str, ...] | None:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list():
            return tuple(text for each in value if isinstance(text := _texts(each), str))
        case _:
            return None
