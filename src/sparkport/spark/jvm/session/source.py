"""Where a lake is: the catalog that lists its tables, and the warehouse that holds their files.

A source is checked before anything starts. Spark learns of it as the settings of one of its
catalogs, and of the jars that these settings need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from sparkport.errors import BadRequest
from sparkport.spark.iceberg.local_storage import local_path
from sparkport.spark.iceberg.storage import scheme_of
from sparkport.spark.jvm.session.catalog_kinds import KINDS
from sparkport.spark.jvm.session.jars import AWS, AZURE, DELTA, GCP, POSTGRES, SQLITE, Coordinates

__all__ = ["ICEBERG_CATALOG", "LakeSource", "coordinates_of"]

ICEBERG_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_POSTGRES = "jdbc:postgresql:"
_STORES: Mapping[str, tuple[str, Coordinates]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), ("org.apache.iceberg.aws.s3.S3FileIO", AWS)),
    **dict.fromkeys(("gs", "gcs"), ("org.apache.iceberg.gcp.gcs.GCSFileIO", GCP)),
    **dict.fromkeys(
        ("abfs", "abfss", "wasb", "wasbs"), ("org.apache.iceberg.azure.adlsv2.ADLSFileIO", AZURE)
    ),
}
"""By scheme of a warehouse: Iceberg's class for its files, and the jar that has the class."""
_HINTS = {"s3.": AWS, "client.": AWS, "glue.": AWS, "gcs.": GCP, "adls.": AZURE}
"""What options begin with that are for a store. A REST catalog's warehouse is only a name."""
_NAMED: Mapping[str, tuple[Coordinates, ...]] = {
    **dict.fromkeys(("io.delta.sql.", "org.apache.spark.sql.delta."), DELTA),
    "org.apache.iceberg.aws.": (AWS,),
    "org.apache.iceberg.gcp.": (GCP,),
    "org.apache.iceberg.azure.": (AZURE,),
    "jdbc:sqlite:": (SQLITE,),
    _POSTGRES: (POSTGRES,),
}
"""Classes and drivers that settings of Spark may name, and the jars that have them."""
_SCHEMES = (*_STORES, "hdfs", "viewfs", "file")
_NEEDS_URI = {
    "jdbc": "jdbc:postgresql://HOST/DATABASE",
    "rest": "https://HOST/PATH",
    "hive": "thrift://HOST:9083",
}


@dataclass(frozen=True, slots=True)
class LakeSource:
    """A catalog and a warehouse.

    `options` are properties of Iceberg's catalog and of its FileIO, by Iceberg's own names:
    `s3.endpoint`, `client.region`, `jdbc.user`, `credential` and so on.
    """

    catalog: str = "sqlite"
    """One of KINDS."""
    warehouse: str = ""
    """A path, or the location of a folder in a store; for a REST catalog also just a name."""
    uri: str = ""
    """Where the catalog is; for SQLite it is in the warehouse."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """With secrets, so it is never shown."""

    def __post_init__(self) -> None:
        """Raises: BadRequest, which says what to set."""
        if self.catalog not in KINDS:
            raise BadRequest(
                f"there is no kind of catalog {self.catalog!r}: set one of {', '.join(KINDS)}"
            )
        scheme = self.scheme
        if self.catalog == "sqlite":
            self._expect_folder(scheme)
        if self.catalog in _NEEDS_URI and not self.uri:
            raise BadRequest(
                f"a catalog of the kind {self.catalog} needs to know where it is: set catalog_uri, "
                f"for instance {_NEEDS_URI[self.catalog]}"
            )
        if self.catalog == "jdbc":
            self._expect_jdbc()
        if self.catalog in ("jdbc", "glue") and not self.warehouse:
            raise BadRequest(
                f"a catalog of the kind {self.catalog} does not say where new tables are put: set "
                "warehouse, for instance s3://BUCKET/FOLDER"
            )
        if scheme and scheme not in _SCHEMES and self.catalog != "rest":
            raise BadRequest(
                f"a warehouse cannot be on {scheme}: use a path, s3://, gs://, abfss:// or hdfs://"
            )

    def _expect_folder(self, scheme: str) -> None:
        if not self.warehouse:
            raise BadRequest("a lake needs a warehouse: name its folder")
        if scheme not in ("", "file"):
            raise BadRequest(
                f"a catalog in SQLite is a file, which cannot be in {scheme}: set catalog to jdbc, "
                "rest, hive, glue or spark for this warehouse"
            )

    def _expect_jdbc(self) -> None:
        if not self.uri.startswith("jdbc:"):
            raise BadRequest(
                "the catalog_uri of a catalog of the kind jdbc begins with jdbc:, for instance "
                f"{_NEEDS_URI['jdbc']}"
            )
        parts = urlsplit(self.uri.removeprefix("jdbc:"))
        if "password" in parts.query or "@" in parts.netloc:
            raise BadRequest(
                "the catalog_uri has a password in it, which others could see: set jdbc.user and "
                "jdbc.password in a secrets_file, or leave them to PGPASSWORD or .pgpass"
            )

    @property
    def scheme(self) -> str:
        """The scheme of the warehouse; "" for a path or a name."""
        return scheme_of(self.warehouse)

    @property
    def folder(self) -> Path:
        """The warehouse as a folder of this machine."""
        return Path(local_path(self.warehouse) or self.warehouse)

    @property
    def is_remote(self) -> bool:
        """Whether the warehouse is in a store and not in a folder of this machine."""
        return self.scheme in _STORES

    @property
    def native_kind(self) -> str:
        """What serves the catalog in this process, by its name in `lake/catalogs.py`."""
        if self.catalog == "jdbc":
            return "jdbc" if self.uri.startswith(_POSTGRES) else "spark"
        return self.catalog if self.catalog in ("sqlite", "rest") else "spark"

    @property
    def coordinates(self) -> tuple[Coordinates, ...]:
        """The jars that the JVM needs for this source, beside Iceberg's."""
        wanted = [each for begin, each in _HINTS.items() if self._has_option(begin)]
        if self.scheme in _STORES:
            wanted.append(_STORES[self.scheme][1])
        if self.catalog == "glue" or (self.catalog == "rest" and not wanted):
            wanted.append(AWS)  # a REST catalog does not say beforehand where its tables are
        if self.catalog == "sqlite":
            wanted.append(SQLITE)
        if self.native_kind == "jdbc":
            wanted.append(POSTGRES)
        return tuple(dict.fromkeys(wanted))

    def _has_option(self, begin: str) -> bool:
        return any(name.startswith(begin) for name in self.options)

    def settings(self, spark_catalog: str) -> dict[str, str]:
        """Spark's settings for a catalog of that name; none where Spark has it already."""
        if self.catalog in ("sqlite", "spark"):
            return {}
        options = {
            "type": self.catalog,
            "cache-enabled": "false",  # other engines commit, too
            **({"uri": self.uri} if self.uri else {}),
            **({"warehouse": self.warehouse} if self.warehouse else {}),
        }
        if self.catalog == "jdbc":
            options["jdbc.schema-version"] = "V1"  # the first version with views
        if self.catalog == "rest":
            options["header.X-Iceberg-Access-Delegation"] = "vended-credentials"
        elif self.scheme in _STORES:
            options["io-impl"] = _STORES[self.scheme][0]
        prefix = f"spark.sql.catalog.{spark_catalog}"
        every = {**options, **self.options}
        return {prefix: ICEBERG_CATALOG, **{f"{prefix}.{key}": each for key, each in every.items()}}


def coordinates_of(conf: Mapping[str, str]) -> tuple[Coordinates, ...]:
    """The jars that have what settings of Spark name, as far as they are known here."""
    wanted = [
        each
        for named, jars in _NAMED.items()
        if any(named in value for value in conf.values())
        for each in jars
    ]
    return tuple(dict.fromkeys(wanted))
