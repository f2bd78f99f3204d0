"""What can be chosen about the server. Without what it takes to serve: `--help` reads it, too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkport.service.settings import ServiceSettings
from sparkport.settings import ENCRYPTION, LIMITS, OTHER, WATCHING, setting

if TYPE_CHECKING:
    from sparkport.server.tls import PEM

__all__ = ["ServerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(ServiceSettings):
    """What an operator may decide about a server: who is let in (`authenticate`), what they may do
    (`policy`), encryption, limits.

    `sparkport config` explains those that are a flag, a variable and a line of the file, too.
    """

    tls_certificate: PEM | None = setting(
        None,
        ENCRYPTION,
        "PEM file of the certificate and its chain; read again when it changes",
        "FILE",
        kind=Path,
        example='"/etc/sparkport/tls.crt"',
    )
    """As bytes, or the path of a file. `grpc+tls://` locations need it and the key."""
    tls_key: PEM | None = setting(
        None,
        ENCRYPTION,
        "PEM file of its key",
        "FILE",
        kind=Path,
        example='"/etc/sparkport/tls.key"',
    )
    tls_client_ca: PEM | None = setting(
        None,
        ENCRYPTION,
        "PEM file of the authorities whose certificates clients must show; by default they need "
        "none",
        "FILE",
        kind=Path,
        example='"/etc/sparkport/clients.crt"',
    )
    max_calls: int = setting(2000, LIMITS, "calls under way at once; further ones are refused", "N")
    idle_seconds: float = setting(
        1800.0,
        LIMITS,
        "end calls of clients that neither send nor take anything for so long; 0 for never",
        "SECONDS",
        least=0,
    )
    http: str | None = setting(
        None,
        WATCHING,
        "where the status page, /metrics and /healthz are; plain HTTP, so keep it on this host or "
        "behind a proxy",
        "HOST:PORT",
        kind=str,
        example='"127.0.0.1:8080"',
    )
    audit_file: str | Path | None = setting(
        None,
        WATCHING,
        "append to this file, as JSON, who has changed what, and who was refused",
        "FILE",
        kind=Path,
        example='"/var/log/sparkport/audit.jsonl"',
    )
    stop_seconds: float = setting(
        30.0,
        WATCHING,
        "how long calls under way may take to finish when the server is stopped",
        "SECONDS",
        least=0,
    )
    keepalive_seconds: float = setting(
        30.0,
        OTHER,
        "ask a connection on which nothing was heard for so long for a sign of life, and close it "
        "if there is none",
        "SECONDS",
    )
    idle_thread_seconds: float = setting(
        10.0, OTHER, "end a thread that has had no call to serve for so long", "SECONDS"
    )
