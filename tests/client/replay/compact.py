"""Makes this folder's files from recordings: `python tests/client/replay/compact.py FOLDER …`.

The arguments are FOLDER and the scenarios. FOLDER holds the recorded traffic of DuckDB's airport
client as a JSON file for each scenario. Only what the client sent is kept, and the outcome for the
client; equal messages and header sets are kept once.
"""

from __future__ import annotations

import base64
import json
import sys
import zlib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Compact:
    """A scenario on its way into a small file."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self.recorded = recorded
        self.blobs: list[str] = []
        self.headers: list[dict[str, str]] = []

    def made(self) -> dict[str, Any]:
        steps = [self.step(step) for step in self.recorded["steps"]]
        return {
            "about": self.recorded["about"],
            "setup": self.recorded["setup_sql_not_recorded"],
            "steps": steps,
            "headers": self.headers,
            "blobs": self.blobs,
        }

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        kept = {key: step[key] for key in ("sql", "note", "result", "error") if step.get(key)}
        return {**kept, "calls": [self.call(call) for call in step["rpcs"]]}

    def call(self, call: dict[str, Any]) -> dict[str, Any]:
        messages: list[Any] = []
        rows = 0
        for message in call["messages"]:
            # "113 messages left out here": those of an exchange are batches like the one before.
            if "note" in message:
                messages.append({"left_out": int(message["note"].split()[0]), "of_rows": rows})
            elif message["dir"] == "request" and "event" not in message:
                messages.append(self.message(message))
                rows = message["decoded"].get("num_rows", 0)
        events = [message.get("event") for message in call["messages"]]
        if call["method"] != "DoExchange":
            messages = [message for message in messages if "left_out" not in message]
        return {
            "method": call["method"],
            **({"action": call["action"]} if call.get("action") else {}),
            "headers": self.place(self.headers, call["request_headers"]),
            "messages": messages,
            **({"cancelled": True} if "cancelled_by_client" in events else {}),
            "status": call["status"]["code"],
        }

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("b64") is None:
            decoded = message["decoded"]
            return {"rows": decoded["num_rows"], "first": decoded["rows"]}
        data = base64.b64decode(message["b64"])
        small = zlib.compress(data, 9)
        packed = (
            "z" + base64.b64encode(small).decode()
            if len(small) < len(data)
            else base64.b64encode(data).decode()
        )
        return {"blob": self.place(self.blobs, packed)}

    @staticmethod
    def place(values: list[Any], value: Any) -> int:
        if value not in values:
            values.append(value)
        return values.index(value)


def write(value: dict[str, Any], path: Path) -> None:
    """Write a line for each step, header set and message, so that a change can be read."""
    lines = [
        f' "about": {json.dumps(value["about"])}',
        f' "setup": {json.dumps(value["setup"], ensure_ascii=False)}',
    ]
    for key in ("steps", "headers", "blobs"):
        elements = ",\n".join(
            "  " + json.dumps(element, ensure_ascii=False) for element in value[key]
        )
        lines.append(f' "{key}": [\n{elements}\n ]')
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def write_types(recorded: dict[str, Any], path: Path) -> None:
    """Write the scenario `types` in its own form: a line for each type under each setting."""
    settings = {key: recorded[key] for key in ("lossless_true", "lossless_false")} | recorded[
        "settings"
    ]
    lines = []
    for setting, cases in settings.items():
        kept = ",\n".join("  " + json.dumps(_type(case), ensure_ascii=False) for case in cases)
        lines.append(f" {json.dumps(setting)}: [\n{kept}\n ]")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _type(case: dict[str, Any]) -> dict[str, Any]:
    keys = (
        "duckdb_type",
        "value_sql",
        "column_type_afterwards",
        "read_back",
        "create_error",
        "insert_error",
    )
    kept: dict[str, Any] = {key: value for key, value in case.items() if key in keys}
    return {**kept, "sent": case.get("create_table_field", {}).get("type")}


if __name__ == "__main__":
    folder, *scenarios = sys.argv[1:]
    for scenario in scenarios:
        recorded = json.loads((Path(folder) / f"{scenario}.json").read_text("utf-8"))
        target = HERE / f"{scenario}.json"
        if scenario == "types":
            write_types(recorded, target)
        else:
            write(Compact(recorded).made(), target)
