"""Where the jars for Spark come from. A script plays the resolver, which would fetch 60 MB."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparkport.spark
from sparkport.errors import PreconditionFailed
from sparkport.spark.jvm.session.jars import COORDINATES, lake_jars

NAMES = [each.file_name for each in COORDINATES]

# Like spark-submit --packages, it leaves the jars in the folder that spark.jars.ivy names. It is
# slow enough for a race.
RESOLVER = """#!/bin/sh
echo "$@" >> "{log}"
for word in "$@"; do case "$word" in spark.jars.ivy=*) ivy="${{word#spark.jars.ivy=}}";; esac; done
sleep 0.5
mkdir -p "$ivy/jars"
for name in {names}; do echo jar > "$ivy/jars/$name"; done
"""


@pytest.fixture
def resolver(tmp_path, monkeypatch):
    """Makes a Spark whose resolver finds the jars of these names, and logs each run."""
    (tmp_path / "spark" / "bin").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARKPORT_JARS", raising=False)
    log = tmp_path / "log"
    log.touch()

    def finds(*names: str) -> Path:
        script = tmp_path / "spark" / "bin" / "spark-submit"
        script.write_text(RESOLVER.format(log=log, names=" ".join(names)))
        script.chmod(0o755)
        return log

    finds(*(each.resolved_name for each in COORDINATES))
    return finds


def test_they_are_pinned_and_no_address_is_named():
    assert [str(each) for each in COORDINATES] == [
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "org.xerial:sqlite-jdbc:3.50.3.0",
    ]
    sources = Path(sparkport.spark.__file__).parent.glob("*.py")
    assert [
        source.name for source in sources if re.search("https?://|maven.org", source.read_text())
    ] == []


def test_they_are_fetched_once_and_kept_in_the_cache(resolver, tmp_path, capfd):
    jars = lake_jars()

    assert jars == tuple(tmp_path / "cache" / "sparkport" / "jars" / name for name in NAMES)
    assert all(jar.read_text() == "jar\n" for jar in jars)
    assert (
        capfd.readouterr().err
        == "Fetching iceberg-spark-runtime-4.1_2.13, sqlite-jdbc for Spark (once) ...\n"
    )
    assert lake_jars() == jars
    assert capfd.readouterr().err == ""
    (run,) = resolver().read_text().splitlines()
    assert ",".join(map(str, COORDINATES)) in run
    assert sorted(path.name for path in jars[0].parent.iterdir()) == [*NAMES]


def test_processes_that_start_at_once_fetch_once(resolver):
    program = "from sparkport.spark.jvm.session.jars import lake_jars; print(*lake_jars())"
    several = [
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(4)
    ]

    said = {process.communicate(timeout=120)[0] for process in several}

    assert [process.returncode for process in several] == [0, 0, 0, 0]
    assert len(said) == 1
    assert len(resolver().read_text().splitlines()) == 1


def test_what_a_killed_process_has_left_is_swept(resolver, tmp_path):
    leftover = tmp_path / "cache" / "sparkport" / "jars" / ".fetching-x"
    leftover.mkdir(parents=True)

    lake_jars()

    assert not leftover.exists()


def test_a_folder_that_was_filled_is_only_read(resolver, tmp_path, monkeypatch):
    folder = tmp_path / "filled"
    folder.mkdir()
    for name in NAMES:
        (folder / name).touch()
    folder.chmod(0o555)
    monkeypatch.setenv("SPARKPORT_JARS", str(folder))

    assert lake_jars() == tuple(folder / name for name in NAMES)
    assert resolver().read_text() == ""
    assert sorted(os.listdir(folder)) == NAMES


def test_jars_of_ones_own_are_taken_as_they_are(resolver, tmp_path):
    (tmp_path / "own.jar").touch()

    assert lake_jars([tmp_path / "own.jar"]) == (tmp_path / "own.jar",)
    with pytest.raises(PreconditionFailed, match=r"missing\.jar does not exist"):
        lake_jars([tmp_path / "missing.jar"])


def test_without_network_it_says_what_to_put_where(resolver, tmp_path):
    resolver(COORDINATES[1].resolved_name)

    with pytest.raises(PreconditionFailed) as caught:
        lake_jars()

    assert str(COORDINATES[0]) in caught.value.message
    assert f"put {NAMES[0]} into {tmp_path / 'cache'}" in caught.value.message
    assert NAMES[1] not in caught.value.message


def test_a_cache_that_cannot_be_written_to_is_named(resolver, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPARKPORT_JARS", str(tmp_path / "file" / "folder"))

    with pytest.raises(
        PreconditionFailed, match=r"cannot hold the jars for Spark .*SPARKPORT_JARS"
    ):
        lake_jars()


def test_a_spark_home_without_spark_is_named(resolver, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    with pytest.raises(PreconditionFailed, match="no bin/spark-submit: unset it"):
        lake_jars()
