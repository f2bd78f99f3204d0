"""What `.ci/run` makes of tests that fail, on small projects of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rerun import AFTER_THE_LAST_TEST

ROOT = Path(__file__).parent.parent

XDIST = ("-p", "xdist", "-n", "1", "--max-worker-restart", "1")

PASSES = "def test_passes(): pass\n"
FLAKY = """
from pathlib import Path

def test_flaky():
    runs = Path("runs")
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    assert len(runs.read_text()) not in FAILS, "an unlucky run"
"""
FAILS = "def test_fails(): assert not 'today'\n"
CRASHES = "import os\n\ndef test_crashes(): os._exit(0)\n"
LEAVES_A_MESS = f"""
import pytest

@pytest.fixture(scope="session", autouse=True)
def run():
    yield
    pytest.fail("{AFTER_THE_LAST_TEST}: a mess")
"""


def rerun(folder: Path, *tests: str, arguments: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit code of the run of these files, and what it printed after pytest's last line."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    for number, text in enumerate(tests):
        (folder / f"test_{number}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tests.rerun", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert not done.stderr
    return done.returncode, re.split(r" in [0-9.]+s =+\n", done.stdout, maxsplit=1)[1]


def test_a_run_without_failures_passes_and_says_no_more(tmp_path):
    assert rerun(tmp_path, PASSES, PASSES) == (0, "")


def test_a_test_that_passes_three_times_by_itself_is_listed_as_flaky(tmp_path):
    code, text = rerun(tmp_path, PASSES, FLAKY.replace("FAILS", "[1]"), arguments=XDIST)

    assert code == 0
    assert text.splitlines() == [
        "by itself, 1 of 3: passed: test_1.py::test_flaky",
        "by itself, 2 of 3: passed: test_1.py::test_flaky",
        "by itself, 3 of 3: passed: test_1.py::test_flaky",
        "FLAKY",
        "  test_1.py::test_flaky: AssertionError: an unlucky run",
    ]
    assert (tmp_path / "runs").read_text() == "xxxx"


def test_a_test_that_fails_once_more_in_three_times_fails_the_run(tmp_path):
    code, text = rerun(tmp_path, FLAKY.replace("FAILS", "[1, 4]"))

    assert code == 1
    assert "by itself, 2 of 3: passed: test_0.py::test_flaky" in text
    assert "by itself, 3 of 3: failed: test_0.py::test_flaky" in text
    assert "FLAKY" not in text


def test_tests_that_fail_again_fail_the_run_and_flaky_ones_come_last(tmp_path):
    code, text = rerun(tmp_path, FLAKY.replace("FAILS", "[1]"), FAILS, PASSES)

    assert code == 1
    assert text.splitlines()[-4:] == [
        "FAILED again",
        "  test_1.py::test_fails: AssertionError: assert not 'today'",
        "FLAKY",
        "  test_0.py::test_flaky: AssertionError: an unlucky run",
    ]
    assert "by itself, 1 of 3: failed: test_1.py::test_fails" in text


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (CRASHES, "worker 'gw0' crashed while running 'test_1.py::test_crashes'"),
        ("1 / 0\n", "test_1.py: ZeroDivisionError: division by zero"),
        (PASSES + LEAVES_A_MESS, f"Failed: {AFTER_THE_LAST_TEST}: a mess"),
    ],
    ids=["crash", "collection", "mess"],
)
def test_what_is_no_tests_own_failure_is_not_run_again(tmp_path, broken, reason):
    flaky = FLAKY.replace("FAILS", "[1]")
    code, text = rerun(tmp_path, flaky, broken, arguments=XDIST)

    assert code == 1
    assert f"  {reason}" in text.splitlines()
    assert "by itself" not in text


def test_an_internal_error_of_pytest_is_not_run_again(tmp_path):
    hook = "def pytest_runtest_logfinish(): raise KeyError('broken plugin')\n"
    (tmp_path / "conftest.py").write_text(hook)

    code, text = rerun(tmp_path, FAILS)

    assert code == 3
    assert "broken plugin" in text
    assert "by itself" not in text


def test_a_run_without_tests_fails(tmp_path):
    assert rerun(tmp_path)[0] == 5


def test_many_failures_are_not_run_again(tmp_path):
    code, text = rerun(tmp_path, *[FAILS] * 11)

    assert (code, text) == (1, "FAILED: 11 tests, too many to run again\n")
