"""`sparkport token`."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from sparkport.cli.flags import Commands, add_config, add_settings, chosen, command
from sparkport.errors import BadRequest
from sparkport.lines import one_line

if TYPE_CHECKING:
    from sparkport.auth.token_file import KnownToken

__all__ = ["add_command"]

_UNITS = {
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "y": timedelta(days=365),
}
_EXAMPLES = """\
examples:
  sparkport token create ada --group analysts --attribute region=EU \\
      --expires 90d --tokens-file tokens
  sparkport token list --tokens-file tokens
  sparkport token revoke ada --tokens-file tokens

A server with --tokens-file tokens takes notice within a second. Only hashes are
in the file: a token that is lost cannot be shown again, so revoke it and create
another one.
"""


def add_command(commands: Commands) -> None:
    parser = command(
        commands, "token", _need_more, help="create, list and revoke tokens", examples=_EXAMPLES
    )
    actions: Commands = parser.add_subparsers(required=True, metavar="ACTION", title="actions")
    create = command(
        actions,
        "create",
        _create,
        help="make a token for somebody",
        description="Make a token for somebody, and print it: it is shown this once.",
        examples=_EXAMPLES,
    )
    create.add_argument("principal", metavar="NAME", help="the principal: who will show it")
    create.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME",
        help="a group that they are in; any number",
    )
    create.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what row filters and masks may use as $NAME; several values of one name make a list",
    )
    create.add_argument(
        "--expires",
        metavar="WHEN",
        help="after 12h, 90d, 8w or 1y, or at a date such as 2030-12-31; by default never",
    )
    show = command(actions, "list", _list, help="show who has tokens")
    show.add_argument("--json", action="store_true", help="as JSON, for programs")
    revoke = command(
        actions,
        "revoke",
        _revoke,
        help="make a token worthless",
        description="Make a token worthless, at once.",
    )
    revoke.add_argument(
        "token",
        metavar="ID|NAME",
        help="the id of a token, or the name of whose tokens are all revoked",
    )
    for each in (create, show, revoke):
        add_config(each)
        add_settings(each, ("tokens_file",))


def _need_more(options: argparse.Namespace) -> int:
    raise AssertionError("argparse asks for an action")


def _create(options: argparse.Namespace) -> int:
    from sparkport.auth.token_file import create_token

    path = _file(options)
    expires = _moment(options.expires) if options.expires else None
    token, known = create_token(
        path, options.principal, options.group, _attributes(options.attribute), expires
    )
    print(token, flush=True)
    until = "never expires" if expires is None else f"expires on {_day(expires)}"
    print(
        f"Above is the token of {known.principal}; it {until}. Keep it: it is not stored, and not "
        f"shown again. Its id is "
        f"{known.id}. In DuckDB:\n"
        f"  CREATE PERSISTENT SECRET sparkport (TYPE airport, auth_token '<token>', "
        f"SCOPE '{chosen(options).location}');",
        file=sys.stderr,
    )
    return 0


def _list(options: argparse.Namespace) -> int:
    from sparkport.auth.token_file import read_tokens

    tokens = read_tokens(_file(options))
    if options.json:
        print(json.dumps([_values(each) for each in tokens], indent=2, ensure_ascii=False))
        return 0
    if not tokens:
        print("There are no tokens: `sparkport token create NAME` makes one.", file=sys.stderr)
        return 0
    now = time.time()
    rows: list[tuple[str, ...]] = [
        ("ID", "PRINCIPAL", "GROUPS", "ATTRIBUTES", "CREATED", "EXPIRES")
    ]
    rows += [tuple(map(one_line, _row(each, now))) for each in tokens]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    return 0


def _revoke(options: argparse.Namespace) -> int:
    from sparkport.auth.token_file import revoke_tokens

    for token in revoke_tokens(_file(options), options.token):
        print(one_line(f"revoked {token.id} of {token.principal}"))
    return 0


def _file(options: argparse.Namespace) -> Path:
    path = chosen(options).tokens_file
    if not path:
        raise BadRequest(
            "name the file of tokens with --tokens-file, SPARKPORT_TOKENS_FILE or in --config"
        )
    return Path(path)


def _attributes(pairs: Sequence[str]) -> dict[str, str | tuple[str, ...]]:
    attributes: dict[str, str | tuple[str, ...]] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name.isidentifier() or not value:
            raise BadRequest(f"an attribute must be of the form NAME=VALUE, not {pair!r}")
        if name in ("principal", "groups"):
            raise BadRequest(
                f"${name} is what filters know anyway: give the attribute another name"
            )
        earlier = attributes.get(name)
        if earlier is None:
            attributes[name] = value
        else:
            attributes[name] = (*((earlier,) if isinstance(earlier, str) else earlier), value)
    return attributes


def _moment(text: str) -> datetime:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    span = re.fullmatch(r"(\d{1,6})([hdwy])", text)
    try:
        moment = now + int(span[1]) * _UNITS[span[2]] if span else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise BadRequest(f"--expires must be like 90d, 12h or 2030-12-31, not {text!r}") from None
    moment = moment if moment.tzinfo is not None else moment.astimezone()
    if moment <= now:
        raise BadRequest(f"--expires must be in the future, not {text!r}")
    return moment.astimezone(timezone.utc)


def _row(token: KnownToken, now: float) -> tuple[str, ...]:
    attributes = [
        f"{key}={value if isinstance(value, str) else '|'.join(value)}"
        for key, value in token.attributes.items()
    ]
    expires = (
        "never"
        if token.expires is None
        else _day(token.expires) + (" (expired)" if token.expired(now) else "")
    )
    created = "" if token.created is None else _day(token.created)
    return (
        token.id,
        token.principal,
        ", ".join(token.groups),
        ", ".join(attributes),
        created,
        expires,
    )


def _values(token: KnownToken) -> dict[str, object]:
    return {
        "id": token.id,
        "principal": token.principal,
        "groups": list(token.groups),
        "attributes": dict(token.attributes),
        "created": token.created and token.created.isoformat(),
        "expires": token.expires and token.expires.isoformat(),
        "expired": token.expired(time.time()),
    }


def _day(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")
