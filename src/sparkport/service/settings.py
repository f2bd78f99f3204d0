"""Settings of the service. Imports little, because `--help` reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sparkport.errors import BadRequest
from sparkport.settings import LIMITS, OTHER, WHO, setting

if TYPE_CHECKING:
    from sparkport.auth import Authenticator, Policy

__all__ = ["Limits", "ServiceSettings"]

_GIGABYTE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of each there may be at once; 0 means no limit.

    Callers without a name share the quota of one principal. The defaults are far above what people
    do, and below what would bring the server down.
    """

    max_scans: int = setting(1000, LIMITS, "scans under way at once; 0 for no limit", "N", least=0)
    max_scans_per_principal: int = setting(
        500, LIMITS, "scans of one principal under way at once; 0 for no limit", "N", least=0
    )
    max_exchanges: int = setting(
        1000,
        LIMITS,
        "changes of rows and calls of functions under way at once; 0 for no limit",
        "N",
        least=0,
    )
    max_exchanges_per_principal: int = setting(
        500, LIMITS, "such changes and calls of one principal; 0 for no limit", "N", least=0
    )
    max_actions: int = setting(
        1000,
        LIMITS,
        "actions and listings under way at once, such as plans of scans and DDL; 0 for no limit",
        "N",
        least=0,
    )
    max_actions_per_principal: int = setting(
        500, LIMITS, "such actions and listings of one principal; 0 for no limit", "N", least=0
    )
    max_transactions: int = setting(
        1000,
        LIMITS,
        "transactions with changes that wait for a commit; 0 for no limit",
        "N",
        least=0,
    )
    max_transactions_per_principal: int = setting(
        500, LIMITS, "such transactions of one principal; 0 for no limit", "N", least=0
    )
    max_staged_bytes: int = setting(
        64 * _GIGABYTE,
        LIMITS,
        "megabytes of rows that wait for the end of their statement, in files or in memory; 0 for "
        "no limit",
        "N",
        least=0,
    )
    max_staged_bytes_per_principal: int = setting(
        32 * _GIGABYTE, LIMITS, "such megabytes of one principal; 0 for no limit", "N", least=0
    )
    max_held_bytes: int = setting(
        4 * _GIGABYTE,
        LIMITS,
        "those of these megabytes that wait in memory; 0 for no limit",
        "N",
        least=0,
    )
    max_held_bytes_per_principal: int = setting(
        2 * _GIGABYTE,
        LIMITS,
        "those of one principal that wait in memory; 0 for no limit",
        "N",
        least=0,
    )
    max_spark_jobs: int = setting(
        500, LIMITS, "jobs of Spark at once; 0 for no limit", "N", least=0
    )
    max_spark_jobs_per_principal: int = setting(
        250, LIMITS, "jobs of Spark for one principal at once; 0 for no limit", "N", least=0
    )
    max_message_bytes: int = setting(
        256 * 1024 * 1024,
        LIMITS,
        "megabytes of one message of a client, such as a batch of rows; 0 for no limit",
        "N",
        least=0,
    )

    def __post_init__(self) -> None:
        for each in fields(Limits):
            if getattr(self, each.name) < 0:
                raise BadRequest(f"the limit {each.name} must be 0, which is none, or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings(Limits):
    """What an operator may decide about the service."""

    authenticate: Authenticator | None = None
    """Tells who a bearer token belongs to; None serves every caller.

    Every call then needs a known token, or a handle that was given to a caller with a known token.
    """
    policy: Policy | Callable[[], Policy | None] | None = None
    """Says who may do what; None lets every admitted caller do everything.

    A function is asked with each call, for rules that change while the server runs. It must be
    quick, and return the same object as long as the rules are the same.
    """
    secret: bytes | None = None
    """Signs descriptors, tickets and transaction ids.

    None draws a random secret; clients then attach again after a restart.
    """
    handle_seconds: float = setting(
        24 * 3600.0,
        WHO,
        "for how long what a client was handed out stands for its token, which it sends with half "
        "of its calls only",
        "SECONDS",
    )
    transaction_seconds: float = setting(
        24 * 3600.0,
        OTHER,
        "how long after its beginning a transaction can be used",
        "SECONDS",
    )
    strict_create_schema: bool = setting(
        False,
        OTHER,
        "let CREATE SCHEMA of an existing schema fail, with which IF NOT EXISTS fails too",
    )
