"""Run all benchmarks: `make bench`, or `make bench ARGS="--rows 2000000 scan"`.

Each line is a ratio or a size measured within this run. Competitors run in turns, so that what else
the machine does meets both, and the median round counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

from benchmarks import (
    care,
    filtered,
    flight_sql,
    functions,
    lake,
    lake_write,
    remote,
    rows,
    scan,
    spark_run,
    statements,
    tpch,
    warm,
    write,
    writers,
)
from benchmarks.measure import Line, print_table

GROUPS: dict[str, Callable[[int], Iterator[Line]]] = {
    "scan": scan.run,
    "write": write.run,
    "functions": functions.run,
    "lake": lake.run,
    "lake_write": lake_write.run,
    "spark_run": spark_run.run,
    "flight_sql": flight_sql.run,
    "filtered": filtered.run,
    "remote": remote.run,
    "rows": rows.run,
    "statements": statements.run,
    "writers": writers.run,
    "care": care.run,
    "tpch": tpch.run,
    "warm": warm.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "groups", nargs="*", choices=[[], *GROUPS], help="which to run (default: all)"
    )
    parser.add_argument(
        "--rows", type=int, default=20_000_000, help="rows of the large table (default 20 million)"
    )
    options = parser.parse_args()
    lines = []
    for name in options.groups or GROUPS:
        for line in GROUPS[name](options.rows):
            print(f"{line.what}: {line.measured}", file=sys.stderr)
            lines.append(line)
    print_table(lines)
    return 0 if all(line.met for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
