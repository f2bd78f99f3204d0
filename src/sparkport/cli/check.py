"""`sparkport check`: find what would go wrong, before it does."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path

from sparkport.cli.exposure import expect_safe
from sparkport.cli.flags import Commands, add_config, add_settings, chosen, command, config_file
from sparkport.cli.progress import spinner
from sparkport.config import Config
from sparkport.errors import SparkportError
from sparkport.lines import one_line

__all__ = ["add_command"]

_DESCRIPTION = """\
See whether `sparkport serve` with the same arguments would work, and say what is
wrong: the configuration, certificates, tokens and keys, Java and the jars of
Spark, lakes (their catalog is listed; in an object store a byte is read,
written and removed; tables with far too many versions or small files are
named), catalogs of your own, and who is granted what. Nothing stays changed,
and nothing is started unless you say --start-spark, which makes the warehouse
where it is missing. The exit code is 1 if something is wrong; what is marked
with ! would work, and is perhaps not what you meant."""
_EXAMPLES = """\
examples:
  sparkport check --config /etc/sparkport.toml
  sparkport check --warehouse /data/lake --start-spark
"""


class _Mark(Enum):
    """How good a finding is, as a sign and in ASCII."""

    GOOD = ("✓", "ok ")
    DOUBTFUL = ("!", "?  ")
    WRONG = ("✗", "!! ")

    def __str__(self) -> str:
        try:
            "✓✗".encode(sys.stdout.encoding or "ascii")
        except UnicodeEncodeError:
            return self.value[1]
        return self.value[0]


@dataclass(frozen=True, slots=True)
class _Finding:
    mark: _Mark
    what: str
    said: str


def add_command(commands: Commands) -> None:
    parser = command(
        commands,
        "check",
        run,
        help="see whether a server would work, and what is wrong",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        usage="sparkport check [catalog ...] [--config FILE] [--start-spark] [settings]",
    )
    parser.add_argument("targets", metavar="catalog", nargs="*", help="as for `sparkport serve`")
    add_config(parser)
    parser.add_argument(
        "--start-spark",
        action="store_true",
        help="also start Spark and ask the lake; takes some seconds",
    )
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.CRITICAL)  # the findings say what is wrong
    good = True
    for finding in _findings(options):
        good = good and finding.mark is not _Mark.WRONG
        print(one_line(f"{finding.mark} {finding.what}: {finding.said}"), flush=True)
    return 0 if good else 1


def _findings(options: argparse.Namespace) -> Iterator[_Finding]:
    try:
        config = chosen(options)
    except SparkportError as error:
        yield _Finding(_Mark.WRONG, "configuration", error.message)
        return
    from sparkport.cli.inspections import Doubt

    for what, inspect in _inspections(config, options):
        said: list[str] = []
        try:
            # Catalogs may print when they are imported.
            with contextlib.redirect_stdout(sys.stderr):
                said += inspect()
        except SparkportError as error:
            yield _Finding(_Mark.WRONG, what, error.message)
        except Exception as error:  # noqa: BLE001 - of somebody else's catalog or authenticator
            yield _Finding(_Mark.WRONG, what, f"{type(error).__name__}: {error}")
        else:
            for each in said:
                yield _Finding(
                    _Mark.DOUBTFUL if isinstance(each, Doubt) else _Mark.GOOD, what, each
                )


_Inspection = tuple[str, Callable[[], Sequence[str]]]


def _inspections(config: Config, options: argparse.Namespace) -> Iterator[_Inspection]:
    """What to inspect, in this order. Each returns what is good or doubtful, or raises."""
    from sparkport.cli import inspections

    found, targets = inspections.Found(), options.targets
    yield "configuration", lambda: _configuration(config, config_file(options))
    if config.server.tls_certificate:
        yield "certificate", lambda: inspections.certificate(config)
    if config.tokens_file:
        yield "tokens", lambda: inspections.tokens(config)
    if config.jwks_url:
        yield "keys", lambda: inspections.keys(config)
    if config.authenticator:
        yield "authenticator", lambda: inspections.authenticator(config)
    if config.secret_file:
        yield "secret_file", lambda: inspections.secret(config.secret_file)
    if config.server.audit_file:
        yield "audit_file", partial(inspections.audit_log, Path(config.server.audit_file))
    if targets or config.demo or not config.every_lake:
        yield "catalogs", lambda: inspections.catalogs(config, targets, found)
    if config.every_lake:
        from sparkport.cli import lake_inspections

        yield "Java", lake_inspections.java
        yield "jars", partial(lake_inspections.jars, config)
        if config.master or config.worker_environment:
            yield "workers", partial(lake_inspections.workers, config)
        for each in config.every_lake:
            yield (
                _called(each, config),
                partial(lake_inspections.lake, each, found, starts_spark=bool(options.start_spark)),
            )
        if options.start_spark:
            yield "Spark", lambda: _spark(config)
    if config.policy is not None:
        yield "permissions", lambda: inspections.permissions(config, found)


def _configuration(config: Config, file: Path | None) -> list[str]:
    from sparkport.cli import inspections
    from sparkport.cli.private_files import doubt_changeable

    expect_safe(config)
    inspections.location(config)
    who = "whoever has a token" if config.wants_tokens else "everybody"
    how = "encrypted" if config.location.startswith("grpc+tls://") else "not encrypted"
    doubts = [] if file is None else map(inspections.Doubt, doubt_changeable(str(file)))
    return [f"serves {who} on {config.location}, {how}", *doubts]


def _called(lake: Config, config: Config) -> str:
    """What a finding is about: a lake in a folder, if it is the only one, is its folder."""
    is_alone = lake is config and lake.catalog == "sqlite" and not config.lakes
    return "warehouse" if is_alone else f"lake {lake.name}"


def _spark(config: Config) -> list[str]:
    from sparkport.catalog import Context
    from sparkport.cli.serve import lake, lakes

    said = []
    with contextlib.ExitStack() as opened:
        for each in lakes(config):
            made = opened.enter_context(lake(replace(each, demo=False)))
            with spinner("asking the lake"):
                count = len(made.schemas(Context(catalog_name=each.name)))
            of_it = f" in {each.name}" if len(config.every_lake) > 1 else ""
            said.append(f"Spark {made.spark.version} starts, and finds {count} schemas{of_it}")
    return said
