"""The command line as a function, for tests that need no process of their own."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pytest

from sparkport.auth import TokenAuthenticator
from sparkport.builder import CatalogBuilder
from sparkport.cli import main
from sparkport.server import Server, ServerSettings


class Ran(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    root = logging.getLogger()
    handlers, level, modules = list(root.handlers), root.level, set(sys.modules)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("company", "shop"):
        if name in sys.modules and name not in modules:
            del sys.modules[name]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command; messages of gRPC's own core are left out."""

    def run(*arguments: str) -> Ran:
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        said = capfd.readouterr()
        lines = [
            line
            for line in said.err.splitlines(keepends=True)
            if not re.match(r"[EWI]\d{4} ", line)
        ]
        return Ran(code, said.out, "".join(lines))

    return run


@pytest.fixture
def refusal(run: Run) -> Callable[..., str]:
    """The sentence of a command that fails."""

    def refusal(*arguments: str) -> str:
        ran = run(*arguments)
        assert (ran.code, ran.out) == (2, "")
        (line,) = ran.err.splitlines()
        assert line.startswith("sparkport: ")
        return line.removeprefix("sparkport: ")

    return refusal


@pytest.fixture
def server() -> Iterator[str]:
    """A server that wants the token "open sesame"."""
    shop = CatalogBuilder("shop")
    sales = shop.schema("sales", comment="What we sold")
    sales.table("orders", pa.table({"id": [1, 2], "amount": [9.5, 12.0]}), comment="One by one")
    sales.table("empty", pa.schema([pa.field("id", pa.int64(), nullable=False)]))

    @sales.scalar_function
    def gross(net: pa.float64()) -> pa.float64():  # type: ignore[valid-type]
        """With tax."""
        return net

    other = CatalogBuilder("other")
    other.schema("s").table("t", pa.table({"a": [1]}))
    settings = ServerSettings(authenticate=TokenAuthenticator({"open sesame": "ali"}))
    with Server([shop, other], "grpc://127.0.0.1:0", settings) as running:
        yield running.location
