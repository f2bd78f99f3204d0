"""`sparkport serve`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from sparkport.cli.exposure import expect_safe
from sparkport.cli.flags import Commands, add_config, add_settings, chosen, command, config_file
from sparkport.cli.progress import spinner
from sparkport.config import Config

if TYPE_CHECKING:
    from sparkport.catalog import Catalog
    from sparkport.spark import LakeCatalog

__all__ = ["add_command", "lake", "lakes", "set_up_logging"]

_log = logging.getLogger("sparkport.cli")

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_USAGE = "sparkport serve [catalog ...] [--config FILE] [settings]"
_DESCRIPTION = """\
Serve catalogs to DuckDB's airport extension: a lake of Iceberg tables on Spark,
catalogs of your own, or both.

Every setting is a flag, an environment variable (SPARKPORT_MAX_CALLS for
--max-calls) or a line of a TOML file (max_calls), in that order of precedence.
Switches are turned off with --no-…, whatever the file says."""
_EXAMPLES = """\
examples:
  sparkport serve --demo
      something to try, on grpc://127.0.0.1:50051
  sparkport serve --warehouse /data/lake --spark-conf spark.driver.memory=8g
      the lake in a folder; Spark runs in this process
  sparkport serve shop.py:catalog
      a catalog that you have written in Python
  sparkport serve --warehouse /data/lake functions.py:catalog --into lake
      a lake, with functions of yours in its schemas
  sparkport serve --config /etc/sparkport.toml
      everything else: encryption, tokens, who may do what
      (`sparkport config` prints such a file to begin with)
  sparkport serve --warehouse /data/lake --listen 0.0.0.0:50051 \\
      --tls-certificate tls.crt --tls-key tls.key --tokens-file tokens
      for others: encrypted, and with tokens
      (`sparkport token create ada --tokens-file tokens` makes one)
"""


def add_command(commands: Commands) -> None:
    parser = command(
        commands,
        "serve",
        run,
        help="serve catalogs to DuckDB",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        usage=_USAGE,
    )
    parser.add_argument(
        "targets",
        metavar="catalog",
        nargs="*",
        help="module:name or file.py:name of a CatalogBuilder or Catalog; several are served "
        "together",
    )
    add_config(parser)
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM. Raises: SparkportError, OSError."""
    config = chosen(options)
    set_up_logging(config)
    expect_safe(config)
    from sparkport.builder import CatalogBuilder
    from sparkport.cli.assembly import catalogs, included, server_settings, worker_doubts
    from sparkport.cli.private_files import doubt_changeable
    from sparkport.cli.rule_doubts import doubts, tables_of
    from sparkport.cli.rule_file import RuleFile
    from sparkport.server import Server

    file = config_file(options)
    rules = None
    if file is not None and file.is_file():  # a pipe can be read only once
        rules = RuleFile(file, config, lambda: chosen(options))
    with ExitStack() as open_until_the_end:
        found = catalogs(config, options.targets)
        functions = included(config, found) if config.into else ()
        served: list[Catalog] = [
            each.build() if isinstance(each, CatalogBuilder) else each
            for each in found
            if each not in functions
        ]
        server = Server(served, config.location, server_settings(config, rules))
        of_workers = worker_doubts(config)
        warmed: list[LakeCatalog] = []
        for each in lakes(config):
            made = open_until_the_end.enter_context(lake(each))
            for builder in functions if each.name == config.into else ():
                made.include(builder)
            served.append(made)
            warmed.append(made)
            server.add_catalog(made)
        for doubt in [
            *([] if file is None else doubt_changeable(str(file))),
            *doubts(config, tables_of(served)),
            *of_workers,
        ]:
            _log.warning("%s", doubt)

        def announce() -> None:
            print(server.greeting, flush=True)
            for each in warmed:
                each.warm_up()
                each.start_care()

        server.run_until_signal(announce)
    return 0


def set_up_logging(config: Config) -> None:
    """Log everything to stderr."""
    from sparkport.server.logs import configure_logging

    configure_logging(_LEVELS[config.log_level], config.log_format)


def lakes(config: Config) -> Sequence[Config]:
    """The lakes of a server, once everything was checked that can be without Spark.

    The jars that they need are fetched. Raises: SparkportError.
    """
    from sparkport.cli.lake_sources import lake_source
    from sparkport.spark.jvm.session.embedded import need_jars
    from sparkport.spark.jvm.session.jars import ICEBERG, lake_jars
    from sparkport.spark.jvm.session.source import coordinates_of
    from sparkport.spark.jvm.session.warehouse import open_warehouse

    found = config.every_lake
    wanted = [ICEBERG]
    for each in found:
        source = lake_source(each)
        if source.catalog == "sqlite":
            open_warehouse(source.folder)
        wanted += (*source.coordinates, *coordinates_of(each.spark_conf))
    if found:
        with spinner("fetching what Spark needs"):
            lake_jars(None, tuple(dict.fromkeys(wanted)))
        need_jars(wanted)
    return found


@contextmanager
def lake(config: Config) -> Iterator[LakeCatalog]:
    """Open a lake while it is served. Raises: SparkportError."""
    from sparkport.cli.lake_sources import lake_source
    from sparkport.spark import LakeCatalog
    from sparkport.spark.demo import fill

    _log.info("starting Spark")
    with spinner("starting Spark"):
        made = LakeCatalog(
            source=lake_source(config),
            name=config.name,
            spark_catalog=config.spark_catalog or None,
            master=config.master or None,
            settings=config.lake,
            conf=config.spark_conf,
            worker_environment=config.worker_environment,
            ui=config.spark_ui,
        )
    try:
        with spinner("getting the lake ready"):
            if config.demo:
                fill(made)
        yield made
    finally:
        made.close()
