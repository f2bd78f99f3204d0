"""Run pytest, and run the tests that failed three times more, each by itself, before the run fails.

`python -m tests.rerun -n 3` takes the arguments of pytest; `.ci/run` calls it. A test that passes
all three times is listed under FLAKY at the end of the output: a defect to mend, which does not
fail the run. A test that fails again fails the run. So does everything that is no test's own
failure, and none of that is run again: a process that crashed, an error in collection, an internal
error of pytest, no tests at all, and what the tests have left behind after the last of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

import pytest

__all__ = ["AFTER_THE_LAST_TEST", "main"]

AFTER_THE_LAST_TEST = "after the last test"
"""Begins the message of a failure that pytest reports with the last test of a process, but that
any test before it may have caused.
"""

_TIMES = 3
_MOST = 10
"""More failures than these are no coincidence, and take too long to run again."""


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments, judge the failures, and return the exit code."""
    failures = _Failures()
    code = int(pytest.main(list(arguments), plugins=[failures]))
    if failures.of_no_test:
        _print("FAILED, and not because of a test alone", failures.of_no_test)
        return code or int(pytest.ExitCode.TESTS_FAILED)
    if code != pytest.ExitCode.TESTS_FAILED or not failures.of_tests:
        return code
    if len(failures.of_tests) > _MOST:
        _print(f"FAILED: {len(failures.of_tests)} tests, too many to run again")
        return code
    return _judge(failures.of_tests)


class _Failures:
    """A plugin of pytest that notes what failed, and why. With xdist it sees the reports of all
    processes.
    """

    def __init__(self) -> None:
        self.of_tests: dict[str, str] = {}
        self.of_no_test: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        reason = _reason(report)
        # xdist reports a test in whose midst a process crashed, without one of pytest's phases.
        if report.when in ("setup", "call", "teardown") and AFTER_THE_LAST_TEST not in reason:
            self.of_tests.setdefault(report.nodeid, reason)
        else:
            self.of_no_test.append(reason)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.of_no_test.append(f"{report.nodeid}: {_reason(report)}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self.of_no_test.append(str(excrepr).splitlines()[-1])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """Called by xdist when one of its processes has ended, as it should or not."""
        if error:
            self.of_no_test.append(f"a process of xdist: {error}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The first line of what the exception says; without one, the last line of the report."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = crash.message.splitlines()[:1] if crash else report.longreprtext.splitlines()[-1:]
    return lines[0] if lines else "no reason given"


def _judge(failed: Mapping[str, str]) -> int:
    passes = {test: _passes(test) for test in failed}
    flaky = [f"{test}: {reason}" for test, reason in failed.items() if passes[test]]
    failed_again = [f"{test}: {reason}" for test, reason in failed.items() if not passes[test]]
    if failed_again:
        _print("FAILED again", failed_again)
    if flaky:
        _print("FLAKY", flaky)
    return int(pytest.ExitCode.TESTS_FAILED if failed_again else pytest.ExitCode.OK)


def _passes(test: str) -> bool:
    """Whether a test passes each time, in a process of its own. Shows the output if it does not."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    for time in range(1, _TIMES + 1):
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", check=False
        )
        outcome = "failed" if done.returncode else "passed"
        _print(f"by itself, {time} of {_TIMES}: {outcome}: {test}")
        if done.returncode:
            sys.stdout.write(done.stdout)
            return False
    return True


def _print(title: str, lines: Iterable[str] = ()) -> None:
    sys.stdout.write("\n".join([title, *(f"  {line}" for line in lines)]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
