"""`sparkport check` with a lake: what it finds without Spark, and on demand with Spark."""

from __future__ import annotations

import logging
import re

import pytest

from sparkport.cli import main


@pytest.fixture(autouse=True)
def _leaves_no_trace():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_what_is_in_a_lake_is_told(lake, warehouse, namespace, capfd):
    lake.spark.sql(f"CREATE TABLE `{lake.spark_catalog}`.`{namespace}`.t (id INT) USING iceberg")
    capfd.readouterr()

    assert main(["check", "--warehouse", str(warehouse), "--start-spark"]) == 0

    said = dict(
        line[2:].split(": ", 1)
        for line in capfd.readouterr().out.splitlines()
        if line.startswith("✓")
    )
    assert f"{warehouse} holds " in said["warehouse"]
    assert re.search(r"\b[1-9][0-9,]* tables?\b", said["warehouse"])
    assert said["Spark"].startswith("Spark 4.")
    assert lake.spark.sql("SELECT 1").collect(), "that of others goes on"


def test_rules_about_tables_that_a_lake_has_not_are_warned_of_without_spark(
    lake, warehouse, namespace, tmp_path, capfd
):
    """The lake's tables are in a database that can be asked without Spark."""
    lake.spark.sql(f"CREATE TABLE `{lake.spark_catalog}`.`{namespace}`.t (id INT) USING iceberg")
    rule = '[[masks]]\non = "{}"\ncolumn = "id"\n'
    paths = [f"lake.{namespace}.t", "lake.**.t", "lake.*.t", f"lake.{namespace}.misspelt"]
    (tmp_path / "sparkport.toml").write_text("".join(rule.format(each) for each in paths))
    capfd.readouterr()

    assert (
        main(["check", "--warehouse", str(warehouse), "--config", str(tmp_path / "sparkport.toml")])
        == 0
    )

    doubts = [line for line in capfd.readouterr().out.splitlines() if line.startswith("!")]
    assert [line.partition(": ")[2].partition(":")[0] for line in doubts] == ["masks 3", "masks 4"]
