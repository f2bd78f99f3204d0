"""Where Spark's workers get their Python from, and what is said of one that does not fit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparkport import errors
from sparkport.cli import packing
from sparkport.errors import BadRequest, PreconditionFailed
from sparkport.spark.jvm import worker_python
from sparkport.spark.jvm.error_rules import RULES, Link
from sparkport.spark.jvm.relay.workers import _Shipped
from sparkport.spark.jvm.worker_python import missing_python, own_version, worker_settings

FAR = "spark://master:7077"


@pytest.fixture(autouse=True)
def _without_variable(monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


@pytest.fixture
def archive(tmp_path) -> Path:
    made = tmp_path / "environment.tar.gz"
    packing.write_archive({}, made, lambda done: None)
    return made


def test_in_local_mode_workers_run_this_python(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/another/python")

    for master in ("local", "local[4]", "local-cluster[2,1,1024]"):
        assert worker_settings(master, "") == {"spark.pyspark.python": sys.executable}


def test_executors_on_this_machine_run_this_python_unless_told_otherwise(monkeypatch):
    assert worker_settings("spark://127.0.0.1:7077", "")["spark.pyspark.python"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/another/python")
    assert worker_settings("spark://127.0.0.1:7077", "") == {
        "spark.pyspark.python": "/another/python"
    }


def test_other_executors_get_the_packed_environment(archive):
    python = {"spark.pyspark.python": "./environment/bin/python"}

    assert worker_settings(FAR, str(archive)) == {
        "spark.archives": f"{archive}#environment",
        **python,
    }
    assert worker_settings("yarn", str(archive)) == {
        "spark.yarn.dist.archives": f"{archive}#environment",
        **python,
    }
    remote = "hdfs://name/environment.tar.gz"
    assert worker_settings(FAR, remote)["spark.archives"] == f"{remote}#environment"
    assert worker_settings(FAR, "") == {}


def test_an_archive_that_does_not_fit_is_refused(archive, tmp_path, monkeypatch):
    with pytest.raises(BadRequest, match=r"there is no .*: `sparkport pack .*` makes it"):
        worker_settings(FAR, str(tmp_path / "missing.tar.gz"))
    (tmp_path / "text.tar.gz").write_text("no archive")
    with pytest.raises(BadRequest, match=r"cannot be read as a \.tar\.gz"):
        worker_settings(FAR, str(tmp_path / "text.tar.gz"))
    monkeypatch.setattr(worker_python, "own_version", lambda: "9.9")
    with pytest.raises(BadRequest, match=rf"has .*{own_version()}, and this server .*9\.9: make"):
        worker_settings(FAR, str(archive))


def test_executors_elsewhere_without_a_chosen_python_are_doubtful(monkeypatch):
    said = missing_python(FAR, "", {})
    assert said.startswith(f"the executors of {FAR} run the python3 that they find")
    assert "`sparkport pack`" in said
    assert missing_python("local[*]", "", {}) == ""
    assert missing_python("spark://localhost:7077", "", {}) == ""
    assert missing_python(FAR, "environment.tar.gz", {}) == ""
    assert missing_python(FAR, "", {"spark.pyspark.python": "/opt/python"}) == ""
    assert "is not used" in missing_python("local", "environment.tar.gz", {})
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert missing_python(FAR, "", {}) == ""


def test_a_worker_with_another_version_says_so_before_it_unpacks_the_task():
    with pytest.raises(
        PreconditionFailed, match=rf"has Sparkport {own_version()}, and the server has 0\.0\.1: "
    ):
        _Shipped("0.0.1", b"no pickle")(0, [])


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ModuleNotFoundError: No module named 'sparkport'", "has no Sparkport"),
        ("Error while finding module … No module named sparkport", "has no Sparkport"),
        (
            "AttributeError: Can't get attribute '_Shipped' on <module 'sparkport.spark.jvm.x'",
            "has no Sparkport, or another version",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'", "lacks a package"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has …", "another Python than the server"),
        ('Cannot run program "./environment/bin/python": error=2', "cannot be started"),
    ],
)
def test_what_spark_says_of_another_python_becomes_one_sentence(said, words):
    rule = next(each for each in RULES if each.fits(Link("SparkException", said, is_java=True)))

    assert words in rule.sentence
    assert "`sparkport pack`" in rule.sentence
    assert rule.error is errors.PreconditionFailed


def test_other_missing_modules_are_somebody_elses():
    link = Link("ModuleNotFoundError", "No module named 'pandas'", is_java=True)

    assert not any(each.fits(link) for each in RULES)
