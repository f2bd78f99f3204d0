"""Calls that hang, and where the client says so."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from sparkport.testing import ClientHang, DuckDBClient, ProtocolViolation

LONGEST_PAUSE = 20.0
"""Seconds for which a busy machine may let a process stand still."""


def hangs(client: DuckDBClient, trap: str, act: Callable[[], Any]) -> None:
    """Check that the client waits in vain at the trap, and gives up when its time is over.

    Two seconds are enough, unless the machine is busy: then the client gives up before it has come
    to the trap. It is tried again with more time.
    """
    found = _given_up(client, 2.0, act)
    if found.trap != trap:
        found = _given_up(client, LONGEST_PAUSE, act)
    assert isinstance(found, ClientHang), found
    assert found.trap == trap, found


def _given_up(client: DuckDBClient, seconds: float, act: Callable[[], Any]) -> ProtocolViolation:
    connection = client._session.connection
    patient, connection.timeout = connection.timeout, seconds
    started = time.monotonic()
    with pytest.raises(ProtocolViolation) as caught:
        act()
    assert time.monotonic() - started < seconds + LONGEST_PAUSE
    connection.timeout = patient
    return caught.value
