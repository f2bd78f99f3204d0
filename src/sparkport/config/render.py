"""The table of settings, to read: as an example file, and as the reference."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from sparkport.config.load import LISTEN, LISTEN_HELP
from sparkport.config.settings import SETTINGS
from sparkport.settings import SECTIONS, Setting

__all__ = ["example_toml", "settings_markdown"]

_WIDTH = 100
_RULES = """\
# Who may do what: without grants, everybody everything. `on` is catalog, catalog.schema or
# catalog.schema.object; * stands for any characters but dots, ** for any number of parts, so also
# for schemas within schemas. `to` names principals, "group:…", or "*" for everybody. Privileges:
# list, read, write, alter, spark_sql, spark_run. These rules, and admins, are read again when this
# file changes.

# [[grants]]
# to = ["ada", "group:analysts"]
# on = "lake.sales"
# may = ["read", "write"]

# Rows that readers see: a condition in DuckDB's SQL over the table's columns, with what is known
# about the reader as $principal, $groups and $attribute. `but` are those who see all rows
# nevertheless.

# [[row_filters]]
# on = "lake.sales.orders"
# rows = "region = $region"
# but = "group:auditors"

# What readers see in place of a column's values: NULL, or an expression in DuckDB's SQL.

# [[masks]]
# on = "lake.**.customers"
# column = "email"
# value = "'…@' || split_part(email, '@', 2)"
# but = ["ada"]
"""


def example_toml() -> str:
    """A file with every setting, explained and commented out, with a default or an example."""
    lines = [
        "# Settings of `sparkport serve --config FILE`. Each is also a flag, --max-calls, and an",
        "# environment variable, SPARKPORT_MAX_CALLS. Flags win over the environment, the "
        "environment",
        "# over this file. Take away the # of what you change.",
    ]
    for section in SECTIONS:
        lines += ["", f"# ---- {section}"]
        for setting in SETTINGS:
            if setting.section == section:
                value = setting.example or _toml(setting.default)
                lines += [
                    "",
                    *textwrap.wrap(
                        setting.help, _WIDTH, initial_indent="# ", subsequent_indent="# "
                    ),
                ]
                lines += [f"# {setting.name} = {value}"]
    return "\n".join([*lines, "", "# ---- Rules", "", _RULES])


def settings_markdown() -> str:
    """The reference: a Markdown table for each section."""
    tables = []
    for section in SECTIONS:
        rows = ["| setting | default | meaning |", "|---|---|---|"]
        if section == SECTIONS[0]:
            rows.append(f"| `{LISTEN}` | | {LISTEN_HELP} |")
        rows += [_row(each) for each in SETTINGS if each.section == section]
        tables.append(f"### {section}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(tables)


def _row(setting: Setting) -> str:
    default = f"`{_toml(setting.default)}`" if setting.default not in ("", (), {}) else ""
    choices = f" ({', '.join(f'`{each}`' for each in setting.choices)})" if setting.choices else ""
    return f"| `{setting.name}` | {default} | {setting.help.replace('|', chr(92) + '|')}{choices} |"


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return json.dumps(list(value))
        case _:
            return json.dumps(value, ensure_ascii=False)
