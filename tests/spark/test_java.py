"""Finding a Java for Spark, and telling the user how to get one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkport.errors import PreconditionFailed
from sparkport.spark.jvm.session.java import find_java


def java_that_says(folder: Path, text: str, code: int = 0) -> Path:
    """A `java` in `folder`/bin."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    "text",
    ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023', 'java version "25-ea"'],
)
def test_a_java_that_is_new_enough_is_found_by_java_home_and_on_the_path(tmp_path, text):
    java = java_that_says(tmp_path, text)

    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}) == java
    assert find_java({"PATH": str(java.parent)}) == java


def test_java_home_wins_over_the_path_as_it_does_for_spark(tmp_path):
    java = java_that_says(tmp_path / "home", 'openjdk version "21.0.1"')
    other = java_that_says(tmp_path / "other", 'openjdk version "17.0.1"')

    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}) == java


def test_the_java_of_this_machine_will_do():
    assert find_java().name == "java"


def test_without_java_it_says_how_to_install_one(tmp_path):
    with pytest.raises(
        PreconditionFailed,
        match=r"not found: install Java 17 or newer .*apt install openjdk-17-jre-headless",
    ):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ('java version "1.8.0_412"', 0, "is Java 8, which is too old for Spark: install Java 17"),
        ('openjdk version "11.0.2"', 0, "is Java 11, which is too old"),
        (
            "The operation couldn’t be completed. Unable to locate a Java Runtime.",
            1,
            "does not run: install Java 17",
        ),
        ("nothing of use", 0, "does not run"),
    ],
)
def test_a_java_that_will_not_do_is_named(tmp_path, text, code, said):
    java_that_says(tmp_path, text.replace("'", ""), code)

    with pytest.raises(PreconditionFailed) as caught:
        find_java({"JAVA_HOME": str(tmp_path)})

    assert said in caught.value.message


def test_a_java_home_without_java_is_named(tmp_path):
    with pytest.raises(PreconditionFailed, match="where there is no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})
