"""A real Hive metastore on loopback, over Derby, from the jars that PySpark brings along.

Its main program listens on all addresses. So the objects that it is made of are put together here,
in a JVM of their own, over a socket on loopback.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.parts.jars import Wanted, end_jvm, fetched, start_jvm
from tests.parts.s3 import REGION, S3Server

__all__ = ["HiveServer", "hive_server", "settings_for_s3"]

_DATABASE = "derby"
_SDK = "2.29.52"
"""Of the SDK of AWS: the one that Hadoop 3.4.2 is made with, in parts instead of 600 MB."""
_S3A = (
    Wanted("org.apache.hadoop", "hadoop-aws", "3.4.2", is_alone=True),
    *(
        Wanted("software.amazon.awssdk", part, _SDK)
        for part in ("s3-transfer-manager", "apache-client", "netty-nio-client", "sts")
    ),
)


class HiveServer:
    """A metastore in a process of its own. The caller closes it."""

    def __init__(self, folder: Path, settings: Mapping[str, str], port: int = 0) -> None:
        """`folder` has the database, and may be used again; `settings` are Hive's and Hadoop's."""
        after = fetched("hadoop-aws-3.4.2", _S3A) if _names_s3a(settings) else []
        options = [f"-Dderby.system.home={folder}"]
        self._gateway = start_jvm(after=after, options=options, folder=folder)
        try:
            self.port = self._serve(folder, settings, port)
        except BaseException:
            self.close()
            raise

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    def _serve(self, folder: Path, settings: Mapping[str, str], port: int) -> int:
        jvm: Any = self._gateway.jvm
        metastore, thrift = jvm.org.apache.hadoop.hive.metastore, jvm.org.apache.thrift
        is_new = not (folder / _DATABASE).exists()
        conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
        for key, value in {**_own_settings(folder), **settings}.items():
            conf.set(key, value)
        handler = metastore.HiveMetaStore.newRetryingHMSHandler("hive", conf, False)
        handler.get_all_databases()  # makes the tables of the database
        if is_new:
            metastore.txn.TxnDbUtil.prepDb(conf)  # those of locks, with which Iceberg commits
        socket = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress("127.0.0.1", port))
        arguments = getattr(thrift.server, "TThreadPoolServer$Args")(socket)
        arguments.processor(metastore.TSetIpAddressProcessor(handler))
        server = thrift.server.TThreadPoolServer(arguments)
        runnable = jvm.java.lang.Class.forName("java.lang.Runnable")
        jvm.java.lang.Thread(jvm.java.beans.EventHandler.create(runnable, server, "serve")).start()
        return int(socket.getServerSocket().getLocalPort())

    def close(self) -> None:
        end_jvm(self._gateway)


@contextmanager
def hive_server(settings: Mapping[str, str]) -> Iterator[HiveServer]:
    """A server for a `with` statement, with an empty database."""
    with tempfile.TemporaryDirectory(prefix="sparkport-hive-") as folder:
        server = HiveServer(Path(folder), settings)
        try:
            yield server
        finally:
            server.close()


def settings_for_s3(s3: S3Server) -> dict[str, str]:
    """What a metastore needs in its core-site.xml for locations that begin with s3://."""
    return {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": s3.access_key,
        "fs.s3a.secret.key": s3.secret_key,
    }


def _names_s3a(settings: Mapping[str, str]) -> bool:
    return any(value.startswith("org.apache.hadoop.fs.s3a.") for value in settings.values())


def _own_settings(folder: Path) -> dict[str, str]:
    database = f"jdbc:derby:;databaseName={folder / _DATABASE};create=true"
    return {
        "javax.jdo.option.ConnectionURL": database,
        "datanucleus.connectionPoolingType": "NONE",  # Spark's jars lack the usual pool
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"{folder}/warehouse",
    }
