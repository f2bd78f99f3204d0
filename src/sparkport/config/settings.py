"""All settings of `sparkport serve`, in one table.

The fields of Config are that table: flags, environment variables, the check of the file, the help
and the reference are made from them, so that nothing is written twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # pyarrow comes with them, which is a second that `--help` need not take
    from sparkport.auth import Grant, Mask, Policy, RowFilter

__all__ = ["SECTIONS", "SETTINGS", "Config", "Setting"]

LISTENING = "Where it listens"
ENCRYPTION = "Encryption"
WHO = "Who asks"
WHAT = "What they may do"
LAKE = "The lake"
LIMITS = "Limits"
WATCHING = "Watching it, stopping it"
OTHER = "Other"
SECTIONS = (LISTENING, LAKE, ENCRYPTION, WHO, WHAT, LIMITS, WATCHING, OTHER)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `max_calls` in a file, `--max-calls` on the command line, SPARKPORT_MAX_CALLS in
    the environment.
    """

    name: str
    default: Any
    help: str
    section: str
    value: str
    """What stands for its value in help texts."""
    example: str
    """A value for the example file, in TOML; empty for the default."""
    least: int
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "SPARKPORT_" + self.name.upper()


def _setting(
    default: Any,
    section: str,
    help: str,
    value: str = "",
    *,
    example: str = "",
    least: int = 1,
    choices: tuple[str, ...] = (),
) -> Any:
    described = {
        "section": section,
        "help": help,
        "value": value,
        "example": example,
        "least": least,
    }
    metadata = {**described, "choices": choices, "default": default}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a server. Flags win over the environment, that over the file, that over these
    defaults.
    """

    location: str = _setting(
        "grpc://127.0.0.1:50051",
        LISTENING,
        "where to listen: grpc://HOST:PORT, or grpc+tls://HOST:PORT; port 0 picks a free one",
        "URL",
    )
    warehouse: str = _setting(
        "",
        LAKE,
        "serve the Spark and Iceberg lake in this folder; made if missing",
        "DIR",
        example='"/data/lake"',
    )
    name: str = _setting("lake", LAKE, "what the lake is attached as", "NAME")
    master: str = _setting(
        "",
        LAKE,
        "where Spark runs, for instance spark://host:7077; by default here",
        "URL",
        example='"spark://host:7077"',
    )
    spark_conf: Mapping[str, str] = _setting(
        {},
        LAKE,
        "a setting of Spark; several are given one by one, in the environment with blanks between them, in the file as a "
        "table",
        "KEY=VALUE",
        example='{ "spark.driver.memory" = "4g" }',
    )
    spark_ui: bool = _setting(False, LAKE, "have Spark's web pages")
    direct: bool = _setting(
        False,
        LAKE,
        "let DuckDB read the lake's files by itself: for clients that can reach them, and see all rows",
    )
    demo: bool = _setting(
        False,
        LAKE,
        "have something to try things with: a schema in the lake; without a lake, a catalog in memory",
    )
    tls_certificate: str = _setting(
        "",
        ENCRYPTION,
        "PEM file of the certificate and its chain; read again when it changes",
        "FILE",
        example='"/etc/sparkport/tls.crt"',
    )
    tls_key: str = _setting(
        "", ENCRYPTION, "PEM file of its key", "FILE", example='"/etc/sparkport/tls.key"'
    )
    tls_client_ca: str = _setting(
        "",
        ENCRYPTION,
        "PEM file of the authorities whose certificates clients must show; by default they need none",
        "FILE",
        example='"/etc/sparkport/clients.crt"',
    )
    insecure: bool = _setting(
        False,
        ENCRYPTION,
        "allow an address that others can reach without encryption: whoever listens in has all tokens",
    )
    tokens_file: str = _setting(
        "",
        WHO,
        "file of hashed tokens, which `sparkport token` writes, and not everybody; read again when it changes",
        "FILE",
        example='"/etc/sparkport/tokens"',
    )
    jwks_url: str = _setting(
        "",
        WHO,
        "where an OpenID provider publishes its keys; its tokens (JWT) are then accepted",
        "URL",
        example='"https://id.example.com/jwks"',
    )
    jwt_issuer: str = _setting(
        "",
        WHO,
        "who must have issued them (the claim iss)",
        "TEXT",
        example='"https://id.example.com"',
    )
    jwt_audience: str = _setting(
        "", WHO, "whom they must be for (the claim aud)", "TEXT", example='"sparkport"'
    )
    jwt_principal_claim: str = _setting("sub", WHO, "the claim that names the principal", "CLAIM")
    jwt_groups_claim: str = _setting(
        "groups", WHO, "the claim that lists the groups; a.b is b in a", "CLAIM"
    )
    jwt_attributes: tuple[str, ...] = _setting(
        (),
        WHO,
        "claims that row filters and masks may use, as $claim",
        "CLAIM",
        example='["region", "team"]',
    )
    authenticator: str = _setting(
        "",
        WHO,
        "module:name or file.py:name of a Python function that tells whose a token is",
        "TARGET",
        example='"company.py:who"',
    )
    handle_seconds: float = _setting(
        86400.0,
        WHO,
        "for how long what a client was handed out stands for its token, which it sends with half of its calls only",
        "SECONDS",
        least=1,
    )
    anonymous: bool = _setting(
        False,
        WHO,
        "serve everybody without a token, deliberately; needed for addresses that others can reach",
    )
    admins: tuple[str, ...] = _setting(
        (),
        WHAT,
        "principals, or group:NAME, who may see and cancel what others do; in the file, read again when it changes",
        "NAME",
        example='["group:operators"]',
    )
    max_calls: int = _setting(
        2000, LIMITS, "calls under way at once; further ones are refused", "N"
    )
    max_scans: int = _setting(1000, LIMITS, "scans under way at once; 0 for no limit", "N", least=0)
    max_scans_per_principal: int = _setting(
        500, LIMITS, "scans of one principal under way at once; 0 for no limit", "N", least=0
    )
    max_exchanges: int = _setting(
        1000,
        LIMITS,
        "changes of rows and calls of functions under way at once; 0 for no limit",
        "N",
        least=0,
    )
    max_exchanges_per_principal: int = _setting(
        500, LIMITS, "such changes and calls of one principal; 0 for no limit", "N", least=0
    )
    max_actions: int = _setting(
        1000,
        LIMITS,
        "actions and listings under way at once, such as plans of scans and DDL; 0 for no limit",
        "N",
        least=0,
    )
    max_actions_per_principal: int = _setting(
        500, LIMITS, "such actions and listings of one principal; 0 for no limit", "N", least=0
    )
    max_transactions: int = _setting(
        1000,
        LIMITS,
        "transactions with changes that wait for a commit; 0 for no limit",
        "N",
        least=0,
    )
    max_transactions_per_principal: int = _setting(
        500, LIMITS, "such transactions of one principal; 0 for no limit", "N", least=0
    )
    max_staged_mb: int = _setting(
        65536,
        LIMITS,
        "megabytes of rows that wait for the end of their statement, in files or in memory; 0 for no limit",
        "N",
        least=0,
    )
    max_staged_mb_per_principal: int = _setting(
        32768, LIMITS, "such megabytes of one principal; 0 for no limit", "N", least=0
    )
    max_held_mb: int = _setting(
        4096, LIMITS, "those of these megabytes that wait in memory; 0 for no limit", "N", least=0
    )
    max_held_mb_per_principal: int = _setting(
        2048, LIMITS, "those of one principal that wait in memory; 0 for no limit", "N", least=0
    )
    max_spark_jobs: int = _setting(
        500, LIMITS, "jobs of Spark at once; 0 for no limit", "N", least=0
    )
    max_spark_jobs_per_principal: int = _setting(
        250, LIMITS, "jobs of Spark for one principal at once; 0 for no limit", "N", least=0
    )
    max_message_mb: int = _setting(
        256,
        LIMITS,
        "megabytes of one message of a client, such as a batch of rows; 0 for no limit",
        "N",
        least=0,
    )
    idle_seconds: float = _setting(
        1800.0,
        LIMITS,
        "end calls of clients that neither send nor take anything for so long; 0 for never",
        "SECONDS",
        least=0,
    )
    http: str = _setting(
        "",
        WATCHING,
        "where the status page, /metrics and /healthz are; plain HTTP, so keep it on this host or behind a proxy",
        "HOST:PORT",
        example='"127.0.0.1:8080"',
    )
    log_level: str = _setting(
        "info",
        WATCHING,
        "how much is logged",
        "LEVEL",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = _setting(
        "text", WATCHING, "how it is logged", "FORMAT", choices=("text", "json")
    )
    audit_file: str = _setting(
        "",
        WATCHING,
        "append to this file, as JSON, who has changed what, and who was refused",
        "FILE",
        example='"/var/log/sparkport/audit.jsonl"',
    )
    stop_seconds: float = _setting(
        30.0,
        WATCHING,
        "how long calls under way may take to finish when the server is stopped",
        "SECONDS",
        least=0,
    )
    secret_file: str = _setting(
        "",
        OTHER,
        "file whose bytes sign what clients are handed: at least 32, random, in a file that only its owner can read; "
        "without it they attach again after a restart, and several servers do not understand each other's clients",
        "FILE",
        example='"/etc/sparkport/secret"',
    )
    strict_create_schema: bool = _setting(
        False,
        OTHER,
        "let CREATE SCHEMA of an existing schema fail, with which IF NOT EXISTS fails too",
    )
    grants: tuple[Grant, ...] | None = None
    """Who may do what; None lets everybody do everything."""
    row_filters: tuple[RowFilter, ...] = ()
    masks: tuple[Mask, ...] = ()

    @property
    def policy(self) -> Policy | None:
        """What was decided about who may do what; None when nothing was."""
        from sparkport.auth import Policy

        if self.grants is None and not (self.row_filters or self.masks or self.admins):
            return None
        return Policy(self.grants, self.row_filters, self.masks, self.admins)

    @property
    def wants_tokens(self) -> bool:
        """Whether callers must say who they are."""
        return bool(self.tokens_file or self.jwks_url or self.authenticator)


def _settings() -> tuple[Setting, ...]:
    described = [each for each in dataclasses.fields(Config) if each.metadata]
    return tuple(Setting(each.name, **each.metadata) for each in described)


SETTINGS = _settings()
