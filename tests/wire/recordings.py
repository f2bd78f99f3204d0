"""Reads the recorded requests; beside them lies a README."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"
SCENARIOS = sorted(path.stem for path in RECORDED.glob("*.json") if path.stem != "types")


@dataclass(frozen=True)
class Message:
    data: bytes
    decoded: dict[str, Any]


@dataclass(frozen=True)
class Call:
    sql: str
    method: str
    action: str | None
    messages: tuple[Message, ...]


def calls(scenario: str) -> Iterator[Call]:
    for call in json.loads((RECORDED / f"{scenario}.json").read_text("utf-8")):
        messages = tuple(
            Message(base64.b64decode(m["b64"]), m["decoded"]) for m in call["messages"]
        )
        yield Call(call["sql"], call["method"], call.get("action"), messages)


def types() -> dict[str, list[dict[str, Any]]]:
    recorded: dict[str, list[dict[str, Any]]] = json.loads(
        (RECORDED / "types.json").read_text("utf-8")
    )
    return recorded
