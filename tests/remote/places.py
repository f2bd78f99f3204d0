"""Places with catalogs and stores as companies have them: on other machines, here on loopback."""

from __future__ import annotations

from pathlib import Path

import requests
from tests.parts.postgres import Database, PostgresServer
from tests.parts.rest import RestServer
from tests.parts.s3 import S3Server
from tests.spark.places import BUCKETS, Place

from sparkport.spark.jvm.session.source import LakeSource

__all__ = ["JdbcPlace", "RestPlace"]


_METADATA = "SELECT metadata_location FROM iceberg_tables WHERE table_name = %s"


class _StorePlace(Place):
    """Lakes in folders of a bucket."""

    is_read_directly = False

    def __init__(self, prefix: str, store: S3Server) -> None:
        self._prefix, self._store = prefix, store
        self.options = store.options()
        assert store.folder is not None, "the tests look at objects as files: versitygw is missing"
        BUCKETS[store.bucket] = store.folder / store.bucket

    def folder(self, name: str) -> Path:
        return BUCKETS[self._store.bucket] / self._prefix / name

    def _location(self, name: str) -> str:
        return f"s3://{self._store.bucket}/{self._prefix}/{name}"


class JdbcPlace(_StorePlace):
    """PostgreSQL and S3. Each lake has a database of its own."""

    def __init__(self, server: PostgresServer, store: S3Server, prefix: str = "jdbc") -> None:
        super().__init__(prefix, store)
        self._server = server
        self._databases: dict[str, Database] = {}

    def source(self, name: str, endpoint: str | None = None) -> LakeSource:
        """`endpoint` is where a proxy is, in front of the store."""
        database = self.database(name)
        options = {**database.options, **self._store.options(endpoint)}
        return LakeSource("jdbc", self._location(name), database.uri, options)

    def database(self, name: str) -> Database:
        """The database of a lake."""
        if name not in self._databases:
            self._databases[name] = self._server.new_database()
        return self._databases[name]

    def metadata(self, name: str, table: str) -> str:
        return str(self.database(name).run(_METADATA, (table,))[0][0])


class RestPlace(_StorePlace):
    """REST and S3. Each lake has a catalog of its own, at a path of its own."""

    def __init__(self, server: RestServer, store: S3Server) -> None:
        super().__init__("rest", store)
        self._server = server
        self._uris: dict[str, str] = {}

    def source(self, name: str, endpoint: str | None = None) -> LakeSource:
        """`endpoint` is where a proxy is, in front of the catalog."""
        uri = endpoint or self.uri(name)
        return LakeSource("rest", self._location(name), uri, self._store.options())

    def uri(self, name: str) -> str:
        """Where the catalog of a lake is."""
        if name not in self._uris:
            location, options = self._location(name), self._store.options()
            self._uris[name] = self._server.add(name, location, options)
        return self._uris[name]

    def metadata(self, name: str, table: str) -> str:
        root = f"{self.uri(name)}/v1/namespaces"
        for (namespace,) in requests.get(root, timeout=60).json()["namespaces"]:
            answer = requests.get(f"{root}/{namespace}/tables/{table}", timeout=60)
            if answer.ok:
                return str(answer.json()["metadata-location"])
        raise LookupError(table)
