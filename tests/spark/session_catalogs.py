"""A server on catalogs of Spark by its settings, for tests: `python … FOLDER`.

One Spark has a Hive metastore (Derby, embedded), Iceberg and Delta, and a process of its own: none
of that can be had in the Spark of the other tests, which has started already. It serves three
catalogs of the kind `spark`. `delta` and `iceberg` are Spark's session catalog on that metastore,
by Delta's and by Iceberg's classes; `hadoop` is Iceberg's, in a folder.

The process reads a line [name of a catalog, SQL] in JSON, and answers with the rows as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

__all__ = ["SessionCatalogs", "session_catalogs"]


class SessionCatalogs:
    """The process, asked from the tests."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.location: str = self._answer()

    def sql(self, catalog: str, text: str) -> list[tuple[Any, ...]]:
        """Run Spark's SQL in the session of a catalog."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([catalog, text]) + "\n")
        self._process.stdin.flush()
        return [tuple(row) for row in self._answer()]

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                assert "error" not in answer, answer["error"]
                return answer["rows"]
        raise AssertionError("the process of the session catalogs has ended")


@contextmanager
def session_catalogs(folder: Path) -> Iterator[SessionCatalogs]:
    command = [sys.executable, "-m", "tests.spark.session_catalogs", str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield SessionCatalogs(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # it ends by itself
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


def settings(folder: Path) -> dict[str, dict[str, str]]:
    """Spark's settings for each catalog."""
    of_all = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={folder}/metastore;create=true"
        ),
        # The embedded metastore has no lock service.
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
        "spark.driver.extraJavaOptions": (
            f"-Dderby.system.home={folder} -Dderby.stream.error.file={folder}/derby.log"
        ),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    }
    own = "spark.sql.catalog.spark_catalog"
    return {
        "delta": {**of_all, own: "org.apache.spark.sql.delta.catalog.DeltaCatalog"},
        "iceberg": {
            **of_all,
            own: "org.apache.iceberg.spark.SparkSessionCatalog",
            f"{own}.type": "hive",
            f"{own}.cache-enabled": "false",
        },
        "hadoop": {
            **of_all,
            "spark.sql.catalog.hadoop": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.hadoop.type": "hadoop",
            "spark.sql.catalog.hadoop.warehouse": f"{folder}/hadoop",
        },
    }


def main(folder: Path) -> None:
    import sparkport as sp
    from sparkport.spark import LakeCatalog, LakeSettings
    from sparkport.spark.jvm.session.source import LakeSource

    source = LakeSource("spark", str(folder / "tables"))
    lakes: dict[str, LakeCatalog] = {}
    with ExitStack() as stack:
        for name, conf in settings(folder).items():
            of_spark = "hadoop" if name == "hadoop" else "spark_catalog"
            lakes[name] = stack.enter_context(
                LakeCatalog(
                    source=source,
                    name=name,
                    spark_catalog=of_spark,
                    conf=conf,
                    settings=LakeSettings(staging=f"{folder}/staging", refresh_seconds=0.0),
                )
            )
        server = stack.enter_context(sp.Server(list(lakes.values()), "grpc://127.0.0.1:0"))
        _say(rows=server.location)
        for line in sys.stdin:
            name, text = json.loads(line)
            try:
                rows = lakes[name].spark.sql(text).collect()
                _say(rows=[[_plain(each) for each in row] for row in rows])
            except Exception as error:
                _say(error=str(error)[:1000])


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def _say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
