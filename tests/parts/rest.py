"""A real REST catalog on loopback: Iceberg's own servlet, over its JDBC catalog in SQLite.

Iceberg has the servlet among its tests, in a jar with a classifier. Spark's resolver takes none, so
the objects that it is made of are told of the classifier, in a JVM of their own. The servlet runs
in the Jetty that is inside of Spark.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from sparkport.spark.jvm.session.folder_lock import locked_folder
from sparkport.spark.jvm.session.jars import AWS, SQLITE, kept_jars, lake_jars, spark_home
from sparkport.spark.jvm.session.java import find_java

__all__ = ["RestServer", "rest_server"]

_GROUP, _VERSION = "org.apache.iceberg", "1.11.0"
"""Iceberg has published no jar of the servlet of 1.12.0."""
_FAILSAFE = "3.3.2"
_S3_JAR = replace(AWS, version=_VERSION)
_HEAP = "-Xmx384m"


class RestServer:
    """REST catalogs in a process of their own. The caller closes it."""

    def __init__(
        self, warehouse: str, folder: Path, options: Mapping[str, str] | None = None
    ) -> None:
        """`folder` is for the databases; `options` are Iceberg's, of the catalog and its files."""
        is_s3 = warehouse.startswith("s3:")
        jars = lake_jars(wanted=[SQLITE, _S3_JAR] if is_s3 else [SQLITE])
        self._gateway = _jvm(*_server_jars(), *jars)
        self._folder = folder
        self._catalogs: list[Any] = []
        self._servers: list[Any] = []
        self.uri = self.add("rest", warehouse, options)

    def add(self, name: str, warehouse: str, options: Mapping[str, str] | None = None) -> str:
        """Serve another catalog at a port of its own, and return where it is."""
        jvm = self._gateway.jvm
        catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        is_s3 = warehouse.startswith("s3:")
        settings = {
            "uri": f"jdbc:sqlite:{self._folder / name}.db?busy_timeout=20000",
            "warehouse": warehouse,
            "jdbc.schema-version": "V1",
            **({"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"} if is_s3 else {}),
            **(options or {}),
        }
        catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
        catalog.initialize("rest", settings)
        self._catalogs.append(catalog)
        adapter = jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog)
        jetty = jvm.org.sparkproject.jetty
        context = jetty.servlet.ServletContextHandler()
        servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(adapter)
        context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(context)
        for connector in server.getConnectors():
            http = connector.getDefaultConnectionFactory().getHttpConfiguration()
            http.setUriCompliance(jetty.http.UriCompliance.UNSAFE)  # names may have slashes
        server.start()
        self._servers.append(server)
        return f"http://127.0.0.1:{server.getURI().getPort()}"

    def close(self) -> None:
        for server in self._servers:
            server.stop()
        for catalog in self._catalogs:
            catalog.close()
        _end(self._gateway)


@contextmanager
def rest_server(
    warehouse: str | None = None, options: Mapping[str, str] | None = None
) -> Iterator[RestServer]:
    """A server for a `with` statement; without a `warehouse`, on a folder that ends with it."""
    with tempfile.TemporaryDirectory(prefix="sparkport-rest-") as folder:
        server = RestServer(warehouse or f"file:{folder}/lake", Path(folder), options)
        try:
            yield server
        finally:
            server.close()


def _jvm(*jars: Path) -> JavaGateway:
    classpath = os.pathsep.join([*map(str, jars), str(spark_home() / "jars" / "*")])
    port, token = launch_gateway(
        classpath=classpath,
        javaopts=[_HEAP, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"],
        java_path=str(find_java()),
        die_on_exit=True,
        enable_auth=True,
    )
    settings = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    return JavaGateway(gateway_parameters=settings)


def _server_jars() -> list[Path]:
    """The jars of the servlet, fetched once and kept beside those of the lake."""
    folder = kept_jars()[0].parent / f"iceberg-rest-{_VERSION}-failsafe-{_FAILSAFE}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            locked_folder(folder.parent),
            tempfile.TemporaryDirectory(dir=folder.parent) as staging,
        ):
            if not folder.is_dir():
                (whole := Path(staging, "jars")).mkdir()
                for jar in _resolved(staging):
                    shutil.copy(jar, whole)
                whole.rename(folder)
    return sorted(folder.glob("*.jar"))


def _resolved(folder: str) -> list[str]:
    gateway = _jvm()
    try:
        return _resolved_in(gateway, folder)
    finally:
        _end(gateway)


def _resolved_in(gateway: JavaGateway, folder: str) -> list[str]:
    jvm: Any = gateway.jvm
    nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    settings = jvm.org.apache.spark.util.MavenUtils.buildIvySettings(
        nothing, jvm.scala.Some(folder), True, jvm.java.lang.System.err
    )
    module = jvm.org.apache.ivy.core.module
    revision, descriptors = module.id.ModuleRevisionId.newInstance, module.descriptor
    wanted = descriptors.DefaultModuleDescriptor.newDefaultInstance(revision("a", "test", "1"))
    core: tuple[dict[str, str], ...] = ({}, {"classifier": "tests"})
    for group, artifact, version, extras, is_transitive in (
        (_GROUP, "iceberg-core", _VERSION, core, True),
        # What it needs is in Iceberg's bundle, but for one library that has another name there.
        (_GROUP, "iceberg-aws", _VERSION, ({},), False),
        ("dev.failsafe", "failsafe", _FAILSAFE, ({},), False),
    ):
        needed = descriptors.DefaultDependencyDescriptor(
            wanted, revision(group, artifact, version), False, False, is_transitive
        )
        needed.addDependencyConfiguration("default", "default")
        for extra in extras:
            jar = descriptors.DefaultDependencyArtifactDescriptor(
                needed, artifact, "jar", "jar", None, extra
            )
            needed.addDependencyArtifact("default", jar)
        wanted.addDependency(needed)
    options = jvm.org.apache.ivy.core.resolve.ResolveOptions()
    options.setTransitive(True)
    confs = gateway.new_array(jvm.java.lang.String, 1)
    confs[0] = "default"
    options.setConfs(confs)
    report = jvm.org.apache.ivy.Ivy.newInstance(settings).resolve(wanted, options)
    assert not report.hasError(), "the jars of Iceberg's REST catalog cannot be fetched"
    return [str(each.getLocalFile()) for each in report.getAllArtifactsReports()]


def _end(gateway: JavaGateway) -> None:
    process = gateway.java_process
    gateway.shutdown()
    if process is not None:
        process.wait(20)
