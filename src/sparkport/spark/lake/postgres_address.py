"""Where a PostgreSQL server is, said in JDBC's words, in those of PostgreSQL's own client library.

Iceberg hands `uri` and all options that begin with `jdbc.` to the JDBC driver. The same settings
are used here. What they leave open, the library finds in its usual places: PGPASSWORD and the other
variables, ~/.pgpass, service files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from sparkport.errors import BadRequest

__all__ = ["PREFIX", "PostgresAddress"]

PREFIX = "jdbc:postgresql:"
_EXAMPLE = "jdbc:postgresql://HOST:5432/DATABASE"
_OPTION = "jdbc."
_CONNECT_SECONDS = 10
_STATEMENT_SECONDS = 30.0
_NAMES = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslpassword": "sslpassword",
    "channelBinding": "channel_binding",
    "gssEncMode": "gssencmode",
    "kerberosServerName": "krbsrvname",
    "ApplicationName": "application_name",
    "options": "options",
    "service": "service",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
}
"""The library's names of the driver's settings. What is not here is the driver's own business."""
_SERVERS = {"primary": "primary", "master": "primary", "secondary": "prefer-standby"}
"""The library's words for `targetServerType`."""
_DEFAULTS = {
    "application_name": "sparkport",
    "client_encoding": "utf8",
    "connect_timeout": str(_CONNECT_SECONDS),
    # A server that has vanished, with its machine or behind a firewall, is noticed.
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": str(round(_STATEMENT_SECONDS * 1000)),
}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """How to connect to a database."""

    parameters: Mapping[str, str] = field(repr=False)
    """By the names of PostgreSQL's client library; a password may be among them."""
    statement_seconds: float = _STATEMENT_SECONDS
    """How long an answer is waited for."""

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str]) -> PostgresAddress:
        """From a catalog's `uri` and its options. Raises: BadRequest, which says what to set."""
        hosts, database, said = _parts(uri)
        for name, value in options.items():
            if name.startswith(_OPTION):
                said[name.removeprefix(_OPTION)] = value
        found = {_NAMES[name]: value for name, value in said.items() if name in _NAMES and value}
        if said.get("ssl", "false") in ("", "true"):
            found.setdefault("sslmode", "verify-full")
        if said.get("currentSchema"):
            path = said["currentSchema"].replace("\\", "\\\\").replace(" ", "\\ ")
            found["options"] = f"{found.get('options', '')} -c search_path={path}".strip()
        if said.get("targetServerType") in _SERVERS:
            found["target_session_attrs"] = _SERVERS[said["targetServerType"]]
        if hosts:
            found["host"] = ",".join(host for host, _ in hosts)
            found["port"] = ",".join(port for _, port in hosts)
        elif "service" not in found and not {"PGHOST", "PGHOSTADDR", "PGSERVICE"} & {*os.environ}:
            found["host"] = "localhost"  # as for the driver; the library would look for a socket
        if database:
            found["dbname"] = database
        seconds = _seconds(said, "socketTimeout") or _STATEMENT_SECONDS
        if not _seconds(said, "connectTimeout") and not _seconds(said, "loginTimeout"):
            found.pop("connect_timeout", None)
        return cls({**_DEFAULTS, **found}, seconds)


def _parts(uri: str) -> tuple[list[tuple[str, str]], str, dict[str, str]]:
    """Hosts with their ports, the database, and the settings."""
    rest = uri.removeprefix(PREFIX)
    try:
        if rest == uri:
            raise ValueError(uri)
        # Without slashes it is only the name of a database.
        parts = urlsplit(rest if rest.startswith("//") else f"///{rest.removeprefix('/')}")
        if "@" in parts.netloc or parts.fragment:
            raise ValueError(uri)
        hosts = [_host(each) for each in parts.netloc.split(",") if each]
        said = dict(parse_qsl(parts.query, keep_blank_values=True))
    except ValueError:
        raise BadRequest(
            f"the catalog_uri of PostgreSQL is written {_EXAMPLE}?NAME=VALUE: correct it"
        ) from None
    return hosts, unquote(parts.path.removeprefix("/")), said


def _host(text: str) -> tuple[str, str]:
    """A host and a port of a list of them. Raises: ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, "5432"
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(text)
    return host.removeprefix("[").removesuffix("]") or "localhost", port


def _seconds(said: Mapping[str, str], name: str) -> int:
    """A time limit; 0 for none. Raises: BadRequest."""
    text = said.get(name, "0")
    if not text.isascii() or not text.isdigit():
        raise BadRequest(f"jdbc.{name} is {text!r}, and must be a number of seconds: correct it")
    return int(text)
