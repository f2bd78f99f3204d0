"""What `sparkport check` inspects. Lakes are in lake_inspections.py.

Each function returns sentences about what is good or doubtful, and raises for what is wrong.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from sparkport.auth import Grant, Mask, RowFilter
from sparkport.auth.token_file import read_tokens
from sparkport.catalog import Catalog
from sparkport.cli import assembly, private_files, rule_doubts
from sparkport.config import Config, suggestion
from sparkport.errors import BadRequest, PreconditionFailed

__all__ = [
    "Doubt",
    "Found",
    "audit_log",
    "authenticator",
    "catalogs",
    "certificate",
    "keys",
    "location",
    "permissions",
    "secret",
    "tokens",
]

_SOON = 14


class Doubt(str):
    """A sentence about what would work, but is perhaps not what was meant."""


@dataclass(slots=True)
class Found:
    """What would be served, as far as it was inspected."""

    names: list[str] = field(default_factory=list)
    catalogs: list[Catalog] = field(default_factory=list)
    of_lake: list[str] = field(default_factory=list)
    """The paths of the lake's tables."""


def location(config: Config) -> None:
    from sparkport.server import Server, ServerSettings

    # Only the location's syntax is checked.
    settings = ServerSettings(tls_certificate=b"-", tls_key=b"-")
    Server([], config.location, settings)


def certificate(config: Config) -> list[str]:
    from sparkport.server.tls import check_files

    files = assembly.certificates(config)
    assert files is not None
    check_files(files)
    assert isinstance(files.certificate, Path)
    return [f"{files.certificate} and {files.key!s} are a pair{_validity(files.certificate)}"]


def _validity(path: Path) -> str:
    """Until when a certificate is valid, if the library is there.

    Raises: PreconditionFailed when it has expired.
    """
    try:
        from cryptography import x509
    except ImportError:
        return ""
    ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    days = (ends - datetime.now(timezone.utc)).days
    if days < 0:
        raise PreconditionFailed(
            f"{path} has expired on {ends:%Y-%m-%d}: replace it, the server need not be restarted"
        )
    return f", valid until {ends:%Y-%m-%d}" + (f": that is in {days} days" if days <= _SOON else "")


def tokens(config: Config) -> list[str]:
    path = Path(config.tokens_file)
    known = read_tokens(path)
    private_files.expect_unchangeable(config.tokens_file)
    now = time.time()
    expired = sum(each.expired(now) for each in known)
    if len(known) == expired:
        raise PreconditionFailed(
            f"{path} has no token that is valid: `sparkport token create NAME` makes one"
        )
    gone = f", {expired} more have expired" if expired else ""
    said = [f"{path} has {len(known) - expired} tokens{gone}"]
    return [*said, *map(Doubt, private_files.doubt_readable(config.tokens_file))]


def keys(config: Config) -> list[str]:
    found = assembly.jwt_authenticator(config).keys.fetch()
    algorithms = sorted({each for key in found for each in key.algorithms})
    return [f"{len(found)} keys at {config.jwks_url}, for {', '.join(algorithms)}"]


def authenticator(config: Config) -> list[str]:
    from sparkport.cli.loading import load_authenticator

    load_authenticator(config.authenticator)
    return [f"{config.authenticator} can be called"]


def secret(path: str) -> list[str]:
    private_files.read_secret(path)
    return [f"{path} is good"]


def audit_log(path: Path) -> list[str]:
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise BadRequest(f"{path} cannot be written: correct its path or its permissions")
    return [f"{path} is good"]


def catalogs(config: Config, targets: Sequence[str], found: Found) -> list[str]:
    from sparkport.builder import CatalogBuilder
    from sparkport.catalog import Context

    said = []
    loaded = assembly.catalogs(config, targets)
    if config.into:
        for builder in assembly.included(config, loaded):
            names = ", ".join(each.name for each in builder.function_schemas())
            said.append(f"{builder.name} adds functions to {config.into}: {names}")
        return said
    for each in loaded:
        catalog = each.build() if isinstance(each, CatalogBuilder) else each
        if catalog.name in found.names:
            raise BadRequest(
                f"two catalogs are called {catalog.name!r}: give one of them another name"
            )
        found.names.append(catalog.name)
        found.catalogs.append(catalog)
        schemas = catalog.schemas(Context(catalog_name=catalog.name))
        said.append(f"{catalog.name} has {len(schemas)} schemas")
    return said


def permissions(config: Config, found: Found) -> list[str]:
    """Inspect the rules. A rule on an unknown catalog is probably misspelt, and is an error."""
    rules: dict[str, Sequence[Grant | RowFilter | Mask]]
    rules = {
        "grants": config.grants or (),
        "row_filters": config.row_filters,
        "masks": config.masks,
    }
    known = [each.lower() for each in found.names]
    for section, several in rules.items():
        for number, rule in enumerate(several, 1):
            catalog = rule.on.partition(".")[0]
            if "*" not in catalog and catalog.lower() not in known:
                remedy = suggestion(catalog, known, f"there are {', '.join(found.names)}")
                raise BadRequest(f"{section} {number}: there is no catalog {catalog!r}; {remedy}")
    if config.grants is not None and not config.wants_tokens:
        unnamed = [each for each in config.grants if "*" not in each.to]
        if unnamed:
            raise BadRequest(
                "grants to somebody need tokens, without which nobody is known: name a tokens_file"
            )
    counts = [
        f"{len(several)} {section.replace('_', ' ')}"
        for section, several in rules.items()
        if several
    ]
    tables = itertools.chain(found.of_lake, rule_doubts.tables_of(found.catalogs))
    doubts = map(Doubt, rule_doubts.doubts(config, tables))
    return [", ".join(counts) or "everybody may do everything; there are admins", *doubts]
