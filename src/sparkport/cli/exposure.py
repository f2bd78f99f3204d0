"""Checking that a server is safe to start: it must not serve the network by accident."""

from __future__ import annotations

from urllib.parse import urlsplit

from sparkport.config import Config
from sparkport.errors import BadRequest

__all__ = ["expect_safe"]


def expect_safe(config: Config) -> None:
    """Refuse contradictions, and an unprotected address that others can reach unless allowed.

    Raises: BadRequest, which says what to do.
    """
    _expect_consistent(config)
    if _reachable(config.location):
        _expect_guarded(config)
    if config.server.http and _reachable(f"http://{config.server.http}") and not config.insecure:
        raise BadRequest(
            f"others can reach the status page on {config.server.http}, which is not encrypted: "
            "keep it on 127.0.0.1, behind a proxy that speaks TLS, or if you want it like that say "
            "--insecure"
        )


def _expect_guarded(config: Config) -> None:
    problems, remedies, words = [], [], []
    if not config.location.startswith("grpc+tls://") and not config.insecure:
        problems.append("there is no encryption")
        remedies.append("tls_certificate and tls_key")
        words.append("--insecure")
    if not config.wants_tokens and not config.anonymous:
        problems.append("no tokens are asked for")
        remedies.append("a tokens_file, jwks_url or authenticator")
        words.append("--anonymous")
    if problems:
        host = urlsplit(config.location).hostname
        raise BadRequest(
            f"others can reach {host}, and {' and '.join(problems)}: name "
            f"{', and '.join(remedies)}, or "
            f"listen on 127.0.0.1, or if you want it like that say {' '.join(words)}"
        )


def _expect_consistent(config: Config) -> None:
    encrypted = config.location.startswith("grpc+tls://")
    if bool(config.server.tls_certificate) != bool(config.server.tls_key):
        raise BadRequest("tls_certificate and tls_key belong together: name both")
    if config.server.tls_certificate and not encrypted:
        raise BadRequest(
            f"there is a TLS certificate, which {config.location} does not use: write grpc+tls://"
        )
    if config.server.tls_client_ca and not encrypted:
        raise BadRequest("tls_client_ca needs encryption: name tls_certificate and tls_key, too")
    if config.anonymous and config.wants_tokens:
        raise BadRequest(
            "anonymous serves everybody, but tokens_file, jwks_url and authenticator want tokens: "
            "choose one"
        )
    if (config.jwt_issuer or config.jwt_audience) and not config.jwks_url:
        raise BadRequest(
            "jwt_issuer and jwt_audience need jwks_url: where the keys are that tokens are signed "
            "with"
        )


def _reachable(location: str) -> bool:
    """Whether others can reach an address. The server itself refuses a malformed address."""
    from sparkport.auth.loopback import is_loopback  # imports pyarrow, which `--help` need not

    try:
        parts = urlsplit(location)
        understood = (
            parts.scheme in ("grpc", "grpc+tcp", "grpc+tls", "http") and parts.port is not None
        )
        return understood and not is_loopback(parts.hostname or "")
    except ValueError:
        return False
