"""`sparkport pack`."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

import sparkport
from sparkport.cli.flags import Commands, command
from sparkport.cli.progress import spinner
from sparkport.errors import BadRequest

__all__ = ["add_command"]

_DESCRIPTION = """\
Pack this Python, with Sparkport and all other packages of its environment, for
Spark's executors. They need nothing installed then but Java and Spark: Spark
sends them the archive, and runs their Python tasks with it. Pack again whenever
you change what is installed here."""
_EXAMPLES = """\
examples:
  sparkport pack
      makes environment.tar.gz
  sparkport pack /opt/sparkport/environment.tar.gz
"""
_MEGABYTE = 1024 * 1024


def add_command(commands: Commands) -> None:
    parser = command(
        commands,
        "pack",
        run,
        help="pack this Python for Spark's executors",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        default=Path("environment.tar.gz"),
        metavar="FILE",
        help="the archive to make, or to make anew (default environment.tar.gz)",
    )


def run(options: argparse.Namespace) -> int:
    """Raises: SparkportError, OSError."""
    from sparkport.cli.packing import contents, platform_name, write_archive

    archive: Path = options.file.expanduser().absolute()
    if not archive.name.endswith((".tar.gz", ".tgz")):
        raise BadRequest(f"{archive.name} must end in .tar.gz: Spark unpacks no other form whole")
    if not archive.parent.is_dir():
        raise BadRequest(f"there is no folder {archive.parent}")
    with spinner("looking for what to pack"):
        files = contents()
    total = sum(each.stat().st_size for each in files.values())
    done = 0

    def report(size: int) -> None:
        nonlocal done
        done = size

    with spinner(lambda: f"packing {done // _MEGABYTE} of {total // _MEGABYTE} MB"):
        write_archive(files, archive, report)
    count = sum(each.endswith(".dist-info/METADATA") for each in files)
    print(
        f"{archive}: {archive.stat().st_size // _MEGABYTE} MB\n"
        f"Python {platform.python_version()}, Sparkport {sparkport.__version__} and "
        f"{count - 1} other packages, for {platform_name()}\n\n"
        "to use it:\n"
        f"  sparkport serve --master spark://HOST:7077 --worker-environment {archive} …\n"
        "in a Spark session of your own:\n"
        f"  spark.archives        {archive}#environment\n"
        "  spark.pyspark.python  ./environment/bin/python"
    )
    return 0
