"""A lake as a catalog."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog import (
    CatalogVersion,
    Context,
    CreateSchemaOptions,
    DropSchemaOptions,
    DynamicCatalog,
    Schema,
    SqlCatalog,
    SqlDialect,
    SqlStatement,
    TransactionManager,
    TransactionState,
    VersionedCatalog,
)
from sparkport.catalog.names import folded
from sparkport.errors import (
    BadRequest,
    Conflict,
    NotFound,
    PreconditionFailed,
    TransactionNotActive,
)
from sparkport.spark.care.caretaker import Caretaker
from sparkport.spark.care.reports import CareLog, CareRun, shown_runs
from sparkport.spark.ddl import schemas
from sparkport.spark.ddl.names import expect_one
from sparkport.spark.functions.included import FunctionSource
from sparkport.spark.functions.lake_functions import LakeFunctions
from sparkport.spark.iceberg.locations import local_path
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.jvm.relay.relay import Relay
from sparkport.spark.jvm.session.adopted import adopt
from sparkport.spark.jvm.session.embedded import catalog_name, embedded_session, release
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake.catalogs import CATALOGS, kind_of, prepared
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.schema import FunctionSchema, LakeSchema
from sparkport.spark.warming import Warming
from sparkport.spark.write.publish import publish_transaction, roll_back
from sparkport.spark.write.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LakeCatalog"]

_STAGING = ".staging"


class LakeCatalog(VersionedCatalog, DynamicCatalog, SqlCatalog, TransactionManager):
    """A catalog of Spark: its namespaces, tables and views.

        # an embedded lake: Spark, Iceberg and SQLite in this process
        LakeCatalog(warehouse="./lake")
        # a company's lake: a catalog in PostgreSQL, files in S3
        LakeCatalog(source=LakeSource("jdbc", "s3://bucket/lake", "jdbc:postgresql://host/lake"))
        # any catalog of a session that you made
        LakeCatalog(spark=session, spark_catalog="prod")

    Several can share a session. All scans of a transaction read one snapshot of each table.
    """

    def __init__(
        self,
        warehouse: str | Path | None = None,
        *,
        name: str = "lake",
        source: LakeSource | None = None,
        spark: SparkSession | None = None,
        spark_catalog: str | None = None,
        master: str | None = None,
        settings: LakeSettings | None = None,
        conf: Mapping[str, str] | None = None,
        jars: Sequence[str | Path] | None = None,
        worker_environment: str | Path = "",
        ui: bool = False,
    ) -> None:
        """`worker_environment` is what `sparkport pack` has made for executors on a cluster.

        Raises: BadRequest, PreconditionFailed if warehouse, Java or jars cannot be used.
        """
        if [warehouse, source, spark].count(None) != 2:
            raise BadRequest(
                "a lake needs a warehouse folder, a source or a Spark session, and only one of them"
            )
        if warehouse is not None:
            source = LakeSource(warehouse=str(warehouse))
        self._name = name
        self._open = True
        self._warming: Warming | None = None
        self._care_log = CareLog()
        self._caretaker: Caretaker | None = None
        settings = settings or LakeSettings()
        if source is not None:
            self.spark_catalog = spark_catalog or catalog_name(source, name)
            source = prepared(source, name, self.spark_catalog)
            self.spark = embedded_session(
                source,
                self.spark_catalog,
                master=master,
                conf=conf,
                jars=jars,
                worker_environment=str(worker_environment),
                ui=ui,
            )
            self._owns_session = True
            gateway = Gateway(self.spark, self.spark_catalog)
            _ = gateway.java_catalog  # fails here if its settings are wrong
            staging = _staging_at(source, settings)
            kind = source.native_kind
        else:
            assert spark is not None
            self.spark_catalog = spark_catalog or "spark_catalog"
            self.spark = adopt(spark)
            self._owns_session = False
            gateway = Gateway(self.spark, self.spark_catalog)
            staging = _staging_of(spark, settings)
            kind = kind_of(gateway)
        self._relay = Relay.of(self.spark)
        catalog = CATALOGS[kind](gateway, settings)
        self._lake = Lake(gateway, catalog, self._relay, settings, staging)
        catalog.listing()
        self._lake.attempt(
            "sweeping the staging area", lambda: sweep(self._lake.staging.root, self._lake)
        )
        self._functions = LakeFunctions(self._lake, care_log=self._care_log)

    @property
    def name(self) -> str:
        return self._name

    def version(self, ctx: Context) -> CatalogVersion:
        return CatalogVersion(self._lake.catalog.listing().version)

    def include(self, functions: FunctionSource) -> LakeCatalog:
        """Add Python functions to schemas of the lake: those of a `CatalogBuilder`.

        A schema of the builder adds to the lake's schema of that name. One that the lake lacks is
        served with its functions alone. Call this before the lake is served.

        Raises: BadRequest for a builder with tables, actions or flights; AlreadyExists for the name
        of a function that the lake has.
        """
        self._functions.include(functions)
        return self

    def schemas(self, ctx: Context) -> Sequence[Schema]:
        namespaces = self._lake.catalog.listing().namespaces
        known = {folded(each) for each in namespaces}
        return (
            *(LakeSchema(self._lake, self._functions, each) for each in namespaces.values()),
            *(
                FunctionSchema(each)
                for each in self._functions.included.schemas
                if folded(each.name) not in known
            ),
        )

    def schema(self, ctx: Context, name: str) -> Schema | None:
        self._notice()
        namespace, alike = self._lake.catalog.namespace_and_alike(name)
        expect_one([each for each in alike if ctx.access.sees_schema(each)], "schemas")
        if namespace is not None:
            return LakeSchema(self._lake, self._functions, namespace)
        return next(
            (
                each
                for each in self.schemas(ctx)
                if isinstance(each, FunctionSchema) and each.name == name
            ),
            None,
        )

    def create_schema(self, ctx: Context, name: str, options: CreateSchemaOptions) -> Schema:
        schemas.create_schema(self._lake, name, options)
        found = self.schema(ctx, name)
        if found is None:
            raise Conflict(f"schema {name} was dropped by somebody else as soon as it was made")
        return found

    def drop_schema(self, ctx: Context, name: str, options: DropSchemaOptions) -> None:
        if not options.ignore_not_found and isinstance(self.schema(ctx, name), FunctionSchema):
            raise PreconditionFailed(
                f"schema {name} has functions of the server only, and cannot be dropped"
            )
        schemas.drop_schema(self._lake, name, options)

    @property
    def dialect(self) -> SqlDialect:
        return SqlDialect(identifier_quote="`", nulls_are_smallest=True)

    def analyse_sql(
        self, ctx: Context, text: str, parameters: pa.RecordBatch | None = None
    ) -> SqlStatement:
        self._notice()
        return self._functions.sql.analyse(ctx, text, parameters)

    def begin_transaction(self, ctx: Context) -> str:
        self._notice()
        self._drop_abandoned()
        return self._lake.transactions.begin()

    def begin_statement(self, ctx: Context) -> str:
        return self._lake.transactions.begin(statement_of=ctx)

    def commit_transaction(self, ctx: Context, transaction_id: str) -> None:
        transactions = self._lake.transactions
        transaction = transactions.find(transaction_id)
        if transaction is None:
            raise NotFound(f"transaction {transaction_id} does not exist, or ended long ago")
        with transaction.lock:  # wait for a statement of it that is being committed
            if transaction.state is TransactionState.ABORTED:
                raise TransactionNotActive(
                    f"transaction {transaction_id} is not active (state: aborted)"
                )
            if transaction.changed:
                try:
                    publish_transaction(self._lake, ctx, transaction)
                except BaseException:
                    transactions.end(transaction_id, TransactionState.ABORTED)
                    raise
            transactions.end(transaction_id, TransactionState.COMMITTED)

    def rollback_transaction(self, ctx: Context, transaction_id: str) -> None:
        transaction = self._lake.transactions.find(transaction_id)
        if transaction is not None:
            with transaction.lock:
                roll_back(self._lake, transaction)
                self._lake.transactions.end(transaction_id, TransactionState.ABORTED)

    def _drop_abandoned(self, *, all_of_them: bool = False) -> None:
        for transaction in self._lake.transactions.abandoned(all_of_them=all_of_them):
            self.rollback_transaction(Context(), transaction.id)

    def transaction_status(self, ctx: Context, transaction_id: str) -> TransactionState | None:
        return self._lake.transactions.status(transaction_id)

    def warm_up(self) -> None:
        """Have the first statements wait no longer than later ones, unless settings say otherwise.

        What they need is loaded, compiled and started in a thread of its own. Nothing is left in
        the lake. Call it once the lake is served.
        """
        if self._lake.settings.warm_up and self._warming is None:
            self._warming = Warming(
                self._lake,
                self._functions,
                lambda spark, catalog, settings: LakeCatalog(
                    spark=spark, spark_catalog=catalog, settings=settings
                ),
            )
            self._warming.start()

    def start_care(self) -> None:
        """Take care of the tables in the background, unless settings say otherwise.

        Small files are joined, old versions forgotten, files removed that nobody needs. Call it
        once the lake is served.
        """
        if self._lake.settings.care and self._caretaker is None:
            self._caretaker = Caretaker(self._lake, self._care_log)
            self._caretaker.start()

    def care_now(self) -> Sequence[CareRun]:
        """Take care of all tables now, and return what was done, the oldest first."""
        if self._caretaker is not None:
            return self._caretaker.run_now()
        caretaker = Caretaker(self._lake, self._care_log)
        try:
            return caretaker.run_now()
        finally:
            caretaker.stop()

    def care_runs(self) -> Sequence[Mapping[str, str | float | None]]:
        """The last steps of care, for the status page."""
        return shown_runs(self._care_log)

    def gauges(self) -> Mapping[str, float]:
        """What care has done so far, for metrics."""
        return self._care_log.totals()

    def _notice(self) -> None:
        for each in (self._warming, self._caretaker):
            if each is not None:
                each.notice()

    def __enter__(self) -> LakeCatalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what this catalog holds.

        A session that Sparkport has made is stopped with its last catalog.
        """
        if self._open:
            self._open = False
            if self._caretaker is not None:
                self._caretaker.stop()
            if self._warming is not None:
                self._warming.stop()
            self._drop_abandoned(all_of_them=True)
            self._lake.staging.close()
            self._lake.catalog.close()
            self._relay.release()
            if self._owns_session:
                release(self.spark)


def _staging_at(source: LakeSource, settings: LakeSettings) -> Path:
    if settings.staging is not None or source.catalog == "sqlite":
        return Path(settings.staging or source.folder / _STAGING).expanduser().absolute()
    return Path(tempfile.gettempdir(), f".sparkport-staging-{os.geteuid()}")


def _staging_of(spark: SparkSession, settings: LakeSettings) -> Path:
    """The folder where statements are staged, which Spark's executors can read, too."""
    if settings.staging is not None:
        return Path(settings.staging).expanduser().absolute()
    folder = local_path(spark.conf.get("spark.sql.warehouse.dir") or "")
    # Each user has another folder, which other users cannot use.
    return (
        Path(tempfile.gettempdir() if folder is None else folder)
        / f".sparkport-staging-{os.geteuid()}"
    )
