"""A real REST catalog on loopback: Iceberg's own servlet, over its JDBC catalog in SQLite.

Iceberg has the servlet among its tests, in a jar with a classifier. The servlet runs in the Jetty
that is inside of Spark.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.parts.jars import Wanted, end_jvm, fetched, start_jvm

from sparkport.spark.jvm.session.jars import AWS, SQLITE, lake_jars

__all__ = ["RestServer", "rest_server"]

_GROUP, _VERSION = "org.apache.iceberg", "1.11.0"
"""Iceberg has published no jar of the servlet of 1.12.0."""
_S3_JAR = replace(AWS, version=_VERSION)
_JARS = (
    Wanted(_GROUP, "iceberg-core", _VERSION, ("", "tests")),
    # What it needs is in Iceberg's bundle, but for one library that has another name there.
    Wanted(_GROUP, "iceberg-aws", _VERSION, is_alone=True),
    Wanted("dev.failsafe", "failsafe", "3.3.2", is_alone=True),
)


class RestServer:
    """REST catalogs in a process of their own. The caller closes it."""

    def __init__(
        self, warehouse: str, folder: Path, options: Mapping[str, str] | None = None
    ) -> None:
        """`folder` is for the databases; `options` are Iceberg's, of the catalog and its files."""
        is_s3 = warehouse.startswith("s3:")
        jars = lake_jars(wanted=[SQLITE, _S3_JAR] if is_s3 else [SQLITE])
        self._gateway = start_jvm([*fetched(f"iceberg-rest-{_VERSION}-on-s3", _JARS), *jars])
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
        end_jvm(self._gateway)


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
