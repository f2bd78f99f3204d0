"""Strangers at a server that wants tokens; `python -m tests.load.fuzz --seconds 600` goes on for
longer, with other requests each time.
"""

from __future__ import annotations

import pytest
from tests.load.fuzz import fuzz


@pytest.mark.long
@pytest.mark.timeout(300)
def test_strangers_are_told_nothing_and_do_no_harm(tmp_path):
    attacks = {"without token", "wrong token", "forged handle", "broken HTTP/2", "status page"}

    attack, memory, wrong = fuzz(tmp_path, seconds=60, warm_up=15, seed=1, attacks=attacks)

    assert not wrong, "\n".join([*wrong[:5], memory, attack.table()])
    assert attacks <= attack.made
