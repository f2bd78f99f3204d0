"""A file of hashed tokens, with a JSON object in each line.

`sparkport token` writes it. A server reads it again when it changes: a new token works, and a
revoked token stops working, within a second. Empty lines and lines that begin with # are kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sparkport.auth.watched import WatchedFiles
from sparkport.catalog import Identity
from sparkport.errors import BadRequest, NotFound

__all__ = ["KnownToken", "TokenFile", "create_token", "read_tokens", "revoke_tokens"]

_log = logging.getLogger(__name__)

_HEADER = (
    "# Tokens of Sparkport, one in a line, and of each only its hash: "
    "see `sparkport token --help`.\n"
)
_PREFIX = "spk_"
"""Tells people, and scanners of repositories, that it is a token of Sparkport."""


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A line of the file."""

    id: str
    """The token's name where the token itself must not be shown."""
    sha256: str
    principal: str
    groups: tuple[str, ...] = ()
    attributes: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    created: datetime | None = None
    expires: datetime | None = None

    def expired(self, now: float) -> bool:
        """Whether the token has expired."""
        return self.expires is not None and self.expires.timestamp() <= now

    @property
    def identity(self) -> Identity:
        """The identity of a caller who shows the token."""
        expires = None if self.expires is None else self.expires.timestamp()
        return Identity(self.principal, frozenset(self.groups), self.attributes, expires, self.id)


class TokenFile:
    """Authenticates by a file of tokens. Thread-safe.

    While the file is broken or missing, the last readable content stays in force.
    """

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.time) -> None:
        """Read the file.

        Raises: BadRequest when the file cannot be read, or has a line that is no token.
        """
        self._clock = clock
        file = Path(path)
        self._known = WatchedFiles(
            [file], lambda: _Known(read_tokens(file)), _log, "tokens stay as they were"
        )

    def __call__(self, token: str) -> Identity | None:
        self._known.look()
        found = self._known.value.by_hash.get(_hash(token))
        return None if found is None or found.expired(self._clock()) else found.identity

    def recognises(self, identity: Identity) -> bool:
        """Whether the caller's token is valid and has the same name, groups and attributes."""
        self._known.look()
        found = self._known.value.by_id.get(identity.credential)
        return (
            found is not None
            and not found.expired(self._clock())
            and _permission_facts(found.identity) == _permission_facts(identity)
        )


class _Known:
    def __init__(self, tokens: Iterable[KnownToken]) -> None:
        known = list(tokens)
        # Looked up by hash: the time that takes tells only about hashes, which no caller can
        # choose.
        self.by_hash = {each.sha256: each for each in known}
        self.by_id = {each.id: each for each in known}


def _permission_facts(identity: Identity) -> tuple[object, ...]:
    """Return what permissions depend on. Not `expires`: tickets expire earlier than tokens."""
    return identity.name, identity.groups, dict(identity.attributes)


def read_tokens(path: Path) -> list[KnownToken]:
    """Return all tokens of a file. Raises: BadRequest, which names the broken line."""
    return [token for _, token in _lines(path) if token is not None]


def create_token(
    path: Path,
    principal: str,
    groups: Iterable[str] = (),
    attributes: Mapping[str, str | tuple[str, ...]] | None = None,
    expires: datetime | None = None,
) -> tuple[str, KnownToken]:
    """Add a token to the file, which is created where missing, and return it.

    The token is stored nowhere else. Raises: BadRequest when the file or the principal is unusable.
    """
    check_principal(principal)
    # 256 random bits cannot be guessed, however fast the hash is. A slow hash, as passwords need,
    # would only cost time.
    token = _PREFIX + secrets.token_urlsafe(32)
    with _locked(path):
        lines = _lines(path) if path.exists() else [(_HEADER, None)]
        taken = {known.id for _, known in lines if known is not None}
        name = next(each for each in iter(lambda: secrets.token_hex(4), "") if each not in taken)
        now = datetime.now(timezone.utc).replace(microsecond=0)
        known = KnownToken(
            name, _hash(token), principal, tuple(groups), dict(attributes or {}), now, expires
        )
        _write(path, [*(line for line, _ in lines), _encode(known)])
    return token, known


def revoke_tokens(path: Path, id_or_principal: str) -> list[KnownToken]:
    """Remove the token of that id, or all tokens of a principal. Raises: NotFound, BadRequest."""
    with _locked(path):
        lines = _lines(path)
        tokens = [known for _, known in lines if known is not None]
        revoked = [each for each in tokens if each.id == id_or_principal]
        revoked = revoked or [each for each in tokens if each.principal == id_or_principal]
        if not revoked:
            raise NotFound(
                f"{path} has no token of {id_or_principal!r}: `sparkport token list` shows those "
                "that there are"
            )
        _write(path, [line for line, known in lines if known not in revoked])
    return revoked


def check_principal(name: str) -> None:
    """Refuse names that mean something else in grants. Raises: BadRequest."""
    if not name.strip() or name == "*" or name.startswith("group:") or not name.isprintable():
        raise BadRequest(
            f"{name!r} cannot be the name of a principal: it must not be empty, * or begin with "
            "group:"
        )


def _lines(path: Path) -> list[tuple[str, KnownToken | None]]:
    """Return each line of the file and the token in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        remedy = f"`sparkport token create NAME --tokens-file {path}` makes it"
        raise BadRequest(
            f"the file of tokens {path} cannot be read, there is none: {remedy}"
        ) from error
    except OSError as error:
        raise BadRequest(f"the file of tokens {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"the file of tokens {path} is not text in UTF-8") from error
    lines: list[tuple[str, KnownToken | None]] = []
    ids: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        known = None
        if line.strip() and not line.lstrip().startswith("#"):
            known = _decode(line, f"{path}, line {number}")
            if known.id in ids:
                raise BadRequest(
                    f"{path}, line {number}: there is another token with the id {known.id!r}"
                )
            ids.add(known.id)
        lines.append((line + "\n", known))
    return lines


def _decode(line: str, where: str) -> KnownToken:
    try:
        values: Any = json.loads(line)
        unknown = values.keys() - KnownToken.__dataclass_fields__.keys()
        token = KnownToken(
            _text(values["id"]),
            _text(values["sha256"]).lower(),
            _text(values["principal"]),
            tuple(_text(each) for each in values.get("groups", [])),
            {_text(key): _attribute(value) for key, value in values.get("attributes", {}).items()},
            _timestamp(values.get("created")),
            _timestamp(values.get("expires")),
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BadRequest(
            f"{where}: this is no token, which are lines that `sparkport token create` writes"
        ) from error
    if unknown:  # perhaps a misspelt `expires`: without it the token would never expire
        raise BadRequest(f"{where}: a token has no {min(unknown)!r}")
    if len(token.sha256) != 64:
        raise BadRequest(
            f"{where}: sha256 must be 64 hexadecimal digits: the hash of a token, not the token "
            "itself"
        )
    check_principal(token.principal)
    return token


def _encode(token: KnownToken) -> str:
    values: dict[str, Any] = {"id": token.id, "principal": token.principal}
    values |= {"groups": list(token.groups)} if token.groups else {}
    values |= {"attributes": dict(token.attributes)} if token.attributes else {}
    times = {"created": token.created, "expires": token.expires}
    values |= {name: each.isoformat() for name, each in times.items() if each is not None}
    return json.dumps({**values, "sha256": token.sha256}, ensure_ascii=False) + "\n"


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _attribute(value: object) -> str | tuple[str, ...]:
    return tuple(_text(each) for each in value) if isinstance(value, list) else _text(value)


def _timestamp(value: object) -> datetime | None:
    if value is None:
        return None
    # Python 3.10 does not know Z.
    timestamp = datetime.fromisoformat(_text(value).replace("Z", "+00:00"))
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=timezone.utc)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the file, so that two commands at once keep each other's tokens.

    The lock ends with its process, even if that is killed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(
            path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
    except OSError as error:
        raise BadRequest(
            f"the file of tokens {path} cannot be written: {error.strerror}"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write(path: Path, lines: Iterable[str]) -> None:
    """Replace the file, whole or not at all. Its owner and permissions stay."""
    try:
        target = path.resolve()  # a symbolic link stays a link
        # Only the owner can read a new temporary file.
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=target.parent)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                _copy_permissions(target, name)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise BadRequest(
            f"the file of tokens {path} cannot be written: {error.strerror}"
        ) from error


def _copy_permissions(old: Path, new: str) -> None:
    """Copy owner and permissions: the server may run as another user, who may read the old file."""
    found = old.stat()
    os.chmod(new, found.st_mode & 0o777)
    if (found.st_uid, found.st_gid) != (os.getuid(), os.getgid()):
        os.chown(new, found.st_uid, found.st_gid)
