"""Runs the blocks of a page in their order, as a reader would."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from adbc_driver_flightsql import DatabaseOptions, dbapi
from tests.docs.blocks import Block, Page
from tests.docs.command_lines import check_commands, check_settings
from tests.docs.shell import Shell

import sparkport
from sparkport.builder.demo import demo_catalog
from sparkport.testing import DuckDBClient

__all__ = ["run_page"]

_LOCATION = re.compile(r"grpc(\+tls)?://(127\.0\.0\.1|localhost|[\w.-]+\.example(\.com)?)(:\d+)/?")
"""The addresses that pages may name: this machine, and hosts that do not exist."""

_ADBC = {
    DatabaseOptions.TIMEOUT_FETCH.value: "60",
    DatabaseOptions.TIMEOUT_QUERY.value: "60",
    DatabaseOptions.TIMEOUT_UPDATE.value: "60",
}
_connect = dbapi.connect


class _Run:
    def __init__(self, page: Page, folder: Path, lake: sparkport.LakeCatalog | None) -> None:
        self._folder = folder
        self._lake = lake
        self._servers: list[sparkport.Server] = []
        self._served: dict[str, str] = {}
        self._shell = Shell(self._located)
        self._namespace: dict[str, Any] = {
            "__name__": page.path.stem,
            "lake_of_the_tests": lake,
            "folder": folder,
        }
        self._result: pa.Table | None = None
        served: list[Any] = [demo_catalog()] if lake is None else [lake, demo_catalog()]
        self._default = self._serve(served)

    def close(self) -> None:
        if self._lake is not None:
            self._clean_up(self._lake.name)
        self._shell.close()
        for server in self._servers:
            server.stop()

    def run(self, block: Block) -> None:
        for each in block.preparations:
            exec(each, self._namespace)
        if block.reason_not_to_run is not None:
            return
        text = block.text.replace("/data/", f"{self._folder}/data/")
        if block.file is not None:
            (self._folder / block.file).write_text(text, "utf-8")
        shown, self._result = self._result, None
        match block.language:
            case "sql":
                self._result = self._shell.run(block.text)
            case "python":
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(
                        compile(text, f"{self._namespace['__name__']}:{block.line}", "exec"),
                        self._namespace,
                    )
            case "toml":
                check_settings(text, self._folder)
            case "sh":
                check_commands(block.text, self._folder)
            case "text":
                if shown is not None:
                    found, written = "\n".join(rendered(shown)), block.text.rstrip("\n")
                    assert found == written, f"the page shows\n{written}\nbut there came\n{found}"
            case "json" | "promql" | "yaml":
                pass  # output, and files of other programs
            case language:
                raise AssertionError(f"a block of the unknown language {language!r}")

    def serve(
        self, catalogs: Any, location: str = "grpc://127.0.0.1:50051", settings: Any = None
    ) -> None:
        """Stands in for `sparkport.serve`, but returns, and serves until the end of the page."""
        self._served[location] = self._serve(catalogs, settings)

    def connect(
        self, uri: str, db_kwargs: Mapping[str, str] | None = None, **options: Any
    ) -> dbapi.Connection:
        """Stands in for `dbapi.connect` of ADBC's driver; here nothing is encrypted."""
        given = {
            name: value
            for name, value in {**_ADBC, **(db_kwargs or {})}.items()
            if "tls" not in name
        }
        return _connect(self._located(uri), db_kwargs=given, **options)

    def _serve(self, catalogs: Any, settings: Any = None) -> str:
        server = sparkport.Server(catalogs, "grpc://127.0.0.1:0", settings)
        server.start()
        self._servers.append(server)
        return server.location

    def _located(self, location: str) -> str:
        assert _LOCATION.fullmatch(location), f"pages name no address like {location}"
        return self._served.get(location, self._default)

    def _clean_up(self, catalog: str) -> None:
        """Leave to the next page a lake with the tables that it had."""
        with DuckDBClient(self._default, catalog, timeout=60) as client:
            for schema in client.schemas():
                for table in client.tables(schema):
                    if schema != "demo" or table not in _DEMO:
                        client.drop_table(schema, table)
                if schema != "demo":
                    client.drop_schema(schema)


_DEMO = ("customers", "products", "orders", "events", "revenue")


def rendered(rows: pa.Table) -> list[str]:
    """Rows as pages show them."""
    cells: list[Sequence[str]] = [rows.column_names]
    cells += [
        ["NULL" if value is None else str(value) for value in row.values()]
        for row in rows.to_pylist()
    ]
    widths = [max(len(row[index]) for row in cells) for index in range(rows.num_columns)]
    lines = [
        " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return [lines[0], "-+-".join("-" * width for width in widths), *lines[1:]]


def run_page(
    page: Page,
    folder: Path,
    lake: sparkport.LakeCatalog | None,
    monkeypatch: Any,
    environment: Mapping[str, str],
) -> int:
    """Run all blocks of a page, and return their number."""
    (folder / "data").mkdir()
    monkeypatch.chdir(folder)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run = _Run(page, folder, lake)
    monkeypatch.setattr(sparkport, "serve", run.serve)
    monkeypatch.setattr(dbapi, "connect", run.connect)
    try:
        for count, block in enumerate(page.blocks(), 1):
            try:
                run.run(block)
            except Exception as error:
                raise AssertionError(
                    f"{page.name}, block {count} at line {block.line}: {error}"
                ) from error
    finally:
        run.close()
    return len(page.blocks())
