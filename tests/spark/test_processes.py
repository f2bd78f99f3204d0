"""Which processes of servers that have died still run."""

from __future__ import annotations

import subprocess
import sys

from tests.spark.processes import wait_until_ended

from sparkport.spark.write.processes import Process, have_ended, process_of


def test_one_that_runs_is_waited_for_and_one_that_has_ended_is_not():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = process_of(child.pid)

    assert not have_ended([known], 0.2)
    assert have_ended([Process(child.pid, "0")], 0.2), "its number belongs to another one now"
    child.kill()
    wait_until_ended(child.pid)
    assert have_ended([known], 0.2), "nobody has asked how it ended, as in a container whose first process is no init"
    child.communicate(timeout=30)
    assert have_ended([known], 0.2)
