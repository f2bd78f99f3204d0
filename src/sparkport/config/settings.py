"""All settings of `sparkport serve`, in one table.

The fields of Config, and of the settings of server, lake and memory that it holds, are that table.
Flags, environment variables, the check of the file, the help and the reference are made from them,
so nothing is written twice. A new setting is a new field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkport.memory.settings import MemorySettings
from sparkport.server.settings import ServerSettings
from sparkport.settings import (
    ENCRYPTION,
    LAKE,
    LISTENING,
    OTHER,
    WATCHING,
    WHAT,
    WHO,
    Setting,
    setting,
    settings_of,
)
from sparkport.spark import LakeSettings
from sparkport.spark.jvm.session.catalog_kinds import KINDS

if TYPE_CHECKING:  # they import pyarrow, which takes a second that `--help` need not wait
    from sparkport.auth import Grant, Mask, Policy, RowFilter

__all__ = ["PLACE", "SETTINGS", "Config", "changed", "combined", "value_of"]


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a server, with their defaults."""

    location: str = setting(
        "grpc://127.0.0.1:50051",
        LISTENING,
        "where to listen: grpc://HOST:PORT, or grpc+tls://HOST:PORT; port 0 picks a free one",
        "URL",
    )
    warehouse: str = setting(
        "",
        LAKE,
        "where the lake's tables are: a folder, which is made if missing, or s3://BUCKET/FOLDER, "
        "gs://, abfss://, hdfs://",
        "PLACE",
        example='"/data/lake"',
    )
    name: str = setting("lake", LAKE, "what the lake is attached as", "NAME")
    catalog: str = setting(
        "sqlite",
        LAKE,
        "the kind of catalog that lists the lake's tables; sqlite is a file in the warehouse",
        "KIND",
        choices=KINDS,
    )
    catalog_uri: str = setting(
        "",
        LAKE,
        "where the catalog is: jdbc:postgresql://HOST/DATABASE, https://HOST/PATH for rest, "
        "thrift://HOST:9083 for hive",
        "URI",
        example='"jdbc:postgresql://db.example.com/lake"',
    )
    catalog_options: Mapping[str, str] = setting(
        {},
        LAKE,
        "a property of Iceberg's catalog or of its FileIO, by Iceberg's name; several as for "
        "spark_conf; secrets belong into secrets_file",
        "KEY=VALUE",
        example='{ "s3.endpoint" = "https://minio.example.com", "client.region" = "eu-west-1" }',
    )
    secrets_file: str = setting(
        "",
        LAKE,
        "TOML file with further catalog_options, which only its owner can read: keys, passwords, "
        "tokens; without it they come from the usual places, such as AWS_PROFILE or ~/.pgpass",
        "FILE",
        example='"/etc/sparkport/lake-secrets.toml"',
    )
    spark_catalog: str = setting(
        "",
        LAKE,
        "Spark's name for the catalog, which catalogs of the kind jdbc keep with each table; by "
        "default the lake's name; for the kind spark, the catalog that spark_conf describes",
        "NAME",
        example='"prod"',
    )
    master: str = setting(
        "",
        LAKE,
        "where Spark runs, for instance spark://host:7077; by default here",
        "URL",
        example='"spark://host:7077"',
    )
    worker_environment: str = setting(
        "",
        LAKE,
        "the Python of Spark's executors, with its packages: an archive that `sparkport pack` has "
        "made; not needed where Spark runs here",
        "FILE",
        example='"/opt/sparkport/environment.tar.gz"',
    )
    spark_conf: Mapping[str, str] = setting(
        {},
        LAKE,
        "a setting of Spark; several are given one by one, in the environment with blanks between "
        "them, in the file as a table",
        "KEY=VALUE",
        example='{ "spark.driver.memory" = "4g" }',
    )
    spark_ui: bool = setting(False, LAKE, "have Spark's web pages")
    into: str = setting(
        "",
        LAKE,
        "add the functions of the catalogs that you name to the schemas of this lake, instead of "
        "serving these catalogs by themselves",
        "NAME",
        example='"lake"',
    )
    demo: bool = setting(
        False,
        LAKE,
        "have something to try things with: a schema in the lake; without a lake, a catalog in "
        "memory",
    )
    tokens_file: str = setting(
        "",
        WHO,
        "file of hashed tokens, which `sparkport token` writes, and not everybody; read again "
        "when it changes",
        "FILE",
        example='"/etc/sparkport/tokens"',
    )
    jwks_url: str = setting(
        "",
        WHO,
        "where an OpenID provider publishes its keys; its tokens (JWT) are then accepted",
        "URL",
        example='"https://id.example.com/jwks"',
    )
    jwt_issuer: str = setting(
        "",
        WHO,
        "who must have issued them (the claim iss)",
        "TEXT",
        example='"https://id.example.com"',
    )
    jwt_audience: str = setting(
        "", WHO, "whom they must be for (the claim aud)", "TEXT", example='"sparkport"'
    )
    jwt_principal_claim: str = setting("sub", WHO, "the claim that names the principal", "CLAIM")
    jwt_groups_claim: str = setting(
        "groups", WHO, "the claim that lists the groups; a.b is b in a", "CLAIM"
    )
    jwt_attributes: tuple[str, ...] = setting(
        (),
        WHO,
        "claims that row filters and masks may use, as $claim",
        "CLAIM",
        example='["region", "team"]',
    )
    authenticator: str = setting(
        "",
        WHO,
        "module:name or file.py:name of a Python function that tells whose a token is",
        "TARGET",
        example='"company.py:who"',
    )
    server: ServerSettings = field(default_factory=ServerSettings)
    insecure: bool = setting(
        False,
        ENCRYPTION,
        "allow an address that others can reach without encryption: whoever listens in has all "
        "tokens",
    )
    anonymous: bool = setting(
        False,
        WHO,
        "serve everybody without a token, deliberately; needed for addresses that others can reach",
    )
    admins: tuple[str, ...] = setting(
        (),
        WHAT,
        "principals, or group:NAME, who may see and cancel what others do; in the file, read "
        "again when it changes",
        "NAME",
        example='["group:operators"]',
    )
    log_level: str = setting(
        "info",
        WATCHING,
        "how much is logged",
        "LEVEL",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: str = setting(
        "text", WATCHING, "how it is logged", "FORMAT", choices=("text", "json")
    )
    secret_file: str = setting(
        "",
        OTHER,
        "file whose bytes sign what clients are handed: at least 32, random, in a file that only "
        "its owner can read; "
        "without it they attach again after a restart, and several servers do not understand each "
        "other's clients",
        "FILE",
        example='"/etc/sparkport/secret"',
    )
    lake: LakeSettings = field(default_factory=LakeSettings)
    """Settings of the lake in the warehouse."""
    lakes: tuple[Config, ...] = ()
    """Further lakes, each with the settings that are its own."""
    memory: MemorySettings = field(default_factory=MemorySettings)
    """Settings of the catalog in memory that `demo` serves."""
    grants: tuple[Grant, ...] | None = None
    """Who may do what; None lets every caller do everything."""
    row_filters: tuple[RowFilter, ...] = ()
    masks: tuple[Mask, ...] = ()

    @property
    def policy(self) -> Policy | None:
        """The rules on who may do what; None when there are none."""
        from sparkport.auth import Policy

        if self.grants is None and not (self.row_filters or self.masks or self.admins):
            return None
        return Policy(self.grants, self.row_filters, self.masks, self.admins)

    @property
    def has_lake(self) -> bool:
        """Whether a lake is described at the top, beside those in `lakes`."""
        return bool(self.warehouse or self.catalog_uri or self.catalog in ("glue", "spark"))

    @property
    def every_lake(self) -> tuple[Config, ...]:
        """All lakes that are served."""
        return (self, *self.lakes) if self.has_lake else self.lakes

    @property
    def wants_tokens(self) -> bool:
        """Whether callers must say who they are."""
        return bool(self.tokens_file or self.jwks_url or self.authenticator)


PLACE = frozenset(
    {
        *("warehouse", "name", "catalog", "catalog_uri", "catalog_options", "secrets_file"),
        *("spark_catalog", "demo"),
    }
)
"""Settings that say where a lake is, and what it is called. No lake has them from another."""

_PARTS: Mapping[str, tuple[type, str]] = {
    "server": (ServerSettings, ""),
    "lake": (LakeSettings, "lake_"),
    "memory": (MemorySettings, "memory_"),
}
"""By field of Config: a class with settings of its own, and the prefix of their names."""


def _settings() -> Iterator[Setting]:
    own = {each.field: each for each in settings_of(Config)}
    for each in dataclasses.fields(Config):
        if each.name in own:
            yield own[each.name]
        elif each.name in _PARTS:
            described, prefix = _PARTS[each.name]
            yield from settings_of(described, each.name, prefix)


SETTINGS = tuple(_settings())


def combined(values: Mapping[Setting, Any], **others: Any) -> Config:
    """Make a Config of these values of settings, and of other fields."""
    for part, (described, _) in _PARTS.items():
        chosen = {each.field: value for each, value in values.items() if each.part == part}
        others[part] = described(**chosen)
    own = {each.field: value for each, value in values.items() if not each.part}
    return Config(**own, **others)


def value_of(config: Config, setting: Setting) -> Any:
    """The value of a setting in the program's unit: bytes, where the setting is in megabytes."""
    holder = getattr(config, setting.part) if setting.part else config
    return getattr(holder, setting.field)


def changed(
    config: Config, before: Config, settings: Iterable[Setting] = SETTINGS
) -> list[Setting]:
    """The settings whose values differ."""
    return [each for each in settings if value_of(config, each) != value_of(before, each)]
