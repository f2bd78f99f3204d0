"""The command line: `sparkport serve`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sparkport
from sparkport.builder import CatalogBuilder
from sparkport.builder.demo import demo_catalog
from sparkport.catalog import Catalog
from sparkport.config import Config, load_config
from sparkport.errors import BadRequest, SparkportError
from sparkport.server import Server, ServerSettings
from sparkport.service.service import ServiceSettings

__all__ = ["main"]

_log = logging.getLogger("sparkport.cli")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0, or 2 after one sentence that says what to do."""
    options = _parser().parse_args(arguments)
    try:
        config = load_config(vars(options), os.environ, options.config)
        logging.basicConfig(level=_level(config), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        with ExitStack() as open_until_the_end:
            server = Server(_catalogs(config, options.catalog), config.location, _settings(config))
            if config.warehouse:
                server.add_catalog(open_until_the_end.enter_context(_lake(config)))
            server.run_until_signal(lambda: print(server.greeting, flush=True))
    except (SparkportError, OSError) as error:
        print(f"sparkport: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before it was ready; Spark takes some seconds
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sparkport", description=sparkport.__doc__)
    parser.add_argument("--version", action="version", version=f"sparkport {sparkport.__version__}")
    serve = parser.add_subparsers(required=True, metavar="command").add_parser(
        "serve", help="serve catalogs to DuckDB", description="Serve catalogs to DuckDB's airport extension."
    )
    serve.add_argument(
        "catalog",
        nargs="*",
        help="module:name or file.py:name of a CatalogBuilder or Catalog; several are served together",
    )
    serve.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    serve.add_argument("--location", help="where to listen (default grpc://127.0.0.1:50051; port 0 picks a free one)")
    serve.add_argument("--listen", metavar="HOST:PORT", help="short for --location grpc://HOST:PORT")
    _add_lake_arguments(serve)
    _add_switch(
        serve, "--demo", "have something to try things with: a schema in the lake; without a lake, a catalog in memory"
    )
    serve.add_argument("--log-level", dest="log_level", help="debug, info, warning or error")
    serve.add_argument("--max-calls", dest="max_calls", type=int, help="calls under way at once (default 2000)")
    serve.add_argument(
        "--secret-file", dest="secret_file", help="file that signs tickets; without it restarts invalidate them"
    )
    serve.add_argument("--tls-certificate", dest="tls_certificate", help="PEM chain for grpc+tls locations")
    serve.add_argument("--tls-key", dest="tls_key", help="PEM key for grpc+tls locations")
    _add_switch(
        serve,
        "--strict-create-schema",
        "let CREATE SCHEMA of an existing schema fail, with which IF NOT EXISTS fails too",
    )
    return parser


def _add_lake_arguments(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--warehouse", metavar="DIR", help="serve the Spark and Iceberg lake in this folder; made if missing"
    )
    serve.add_argument("--name", help="what the lake is attached as (default lake)")
    serve.add_argument(
        "--master", metavar="URL", help="where Spark runs, for instance spark://host:7077 (default: here)"
    )
    serve.add_argument(
        "--spark-conf",
        dest="spark_conf",
        action="append",
        metavar="KEY=VALUE",
        help="a setting of Spark; several are given one by one",
    )
    _add_switch(serve, "--spark-ui", "have Spark's web pages")
    _add_switch(serve, "--direct", "let DuckDB read the lake's files by itself: for clients that can reach them")


def _add_switch(serve: argparse.ArgumentParser, flag: str, meaning: str) -> None:
    """A flag that, unless it is given, leaves the choice to the environment and the file."""
    serve.add_argument(flag, action="store_const", const=True, help=meaning)


_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _level(config: Config) -> int:
    level = _LEVELS.get(config.log_level.lower())
    if level is None:
        raise BadRequest(f"the log level must be {', '.join(_LEVELS)}, not {config.log_level!r}")
    return level


def _catalogs(config: Config, targets: Sequence[str]) -> list[Catalog | CatalogBuilder]:
    """All that is served but the lake, which takes longer. Raises: BadRequest."""
    catalogs = [_load(target) for target in targets]
    if not config.warehouse:
        if config.master or config.spark_conf or config.spark_ui or config.direct:
            raise BadRequest(
                "--master, --spark-conf, --spark-ui and --direct are for a lake: name its folder with --warehouse"
            )
        catalogs += [demo_catalog()] if config.demo else []
        if not catalogs:
            raise BadRequest("name a catalog to serve, for instance shop.py:catalog, or a --warehouse, or try --demo")
    return catalogs


@contextmanager
def _lake(config: Config) -> Iterator[Catalog]:
    """The embedded lake, while it is served. Raises: SparkportError."""
    from sparkport.spark import LakeCatalog, LakeSettings
    from sparkport.spark.demo import fill

    _log.info("starting Spark")
    lake = LakeCatalog(
        config.warehouse,
        name=config.name,
        master=config.master or None,
        settings=LakeSettings(direct=config.direct),
        conf=config.spark_conf,
        ui=config.spark_ui,
    )
    try:
        if config.demo:
            fill(lake)
        lake.warm_up()
        yield lake
    finally:
        lake.close()


def _load(target: str) -> CatalogBuilder | Catalog:
    """The catalog that `module:name` or `file.py:name` means. Raises: BadRequest."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise BadRequest(f"{target!r} must be of the form module:name or file.py:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does, and the installed command does not
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        _log.debug("importing %s", place, exc_info=error)
        problem = f"{type(error).__name__}: {error} (--log-level debug shows where)"
        raise BadRequest(f"{place} cannot be imported: {problem}") from error
    catalog: Any = getattr(module, name, None)
    if callable(catalog) and not isinstance(catalog, Catalog | CatalogBuilder):
        catalog = catalog()
    if not isinstance(catalog, Catalog | CatalogBuilder):
        raise BadRequest(f"{place} has no CatalogBuilder or Catalog called {name!r}")
    return catalog


def _load_file(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise ImportError("it is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


def _settings(config: Config) -> ServerSettings:
    def read(name: str) -> bytes | None:
        try:
            return Path(name).read_bytes() if name else None
        except OSError as error:
            raise BadRequest(f"the file {name} cannot be read: {error.strerror}") from error

    return ServerSettings(
        service=ServiceSettings(secret=read(config.secret_file), strict_create_schema=config.strict_create_schema),
        tls_certificate=read(config.tls_certificate),
        tls_key=read(config.tls_key),
        max_concurrent_calls=config.max_calls,
    )
