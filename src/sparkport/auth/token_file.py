"""A file of tokens, of which it holds only hashes: one JSON object in a line, which people can read
and programs compare.

`sparkport token` writes it; a server reads it again when it changes, so that a new token works, and
a revoked one does not, within a second. Empty lines and such that begin with # are left alone.
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

from sparkport.auth.watched import Watched
from sparkport.catalog import Identity
from sparkport.errors import BadRequest, NotFound

__all__ = ["KnownToken", "TokenFile", "create_token", "read_tokens", "revoke_tokens"]

_log = logging.getLogger(__name__)

_HEADER = "# Tokens of Sparkport, one in a line, and of each only its hash: see `sparkport token --help`.\n"
_PREFIX = "spk_"
"""Lets people, and scanners of repositories, see what it is."""


@dataclass(frozen=True, slots=True)
class KnownToken:
    """One line of the file."""

    id: str
    """What it is called where it must not be shown."""
    sha256: str
    principal: str
    groups: tuple[str, ...] = ()
    attributes: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    created: datetime | None = None
    expires: datetime | None = None

    def expired(self, now: float) -> bool:
        """Whether its time is over."""
        return self.expires is not None and self.expires.timestamp() <= now

    @property
    def identity(self) -> Identity:
        """Who shows it."""
        expires = None if self.expires is None else self.expires.timestamp()
        return Identity(self.principal, frozenset(self.groups), self.attributes, expires, self.id)


class TokenFile:
    """Authenticates by a file of tokens. Thread-safe.

    While the file is broken or missing, what it held before goes on to hold; nobody is let in who
    was not before.
    """

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.time) -> None:
        """Raises: BadRequest when the file cannot be read, or has a line that is no token."""
        self._clock = clock
        file = Path(path)
        self._known = Watched(
            [file], lambda: _Known(read_tokens(file)), _log, "tokens stay as they were"
        )

    def __call__(self, token: str) -> Identity | None:
        self._known.look()
        found = self._known.value.by_hash.get(_hash(token))
        return None if found is None or found.expired(self._clock()) else found.identity

    def recognises(self, identity: Identity) -> bool:
        """Whether the token that this caller has shown is still good, and still says the same about
        it.
        """
        self._known.look()
        found = self._known.value.by_id.get(identity.credential)
        return (
            found is not None
            and not found.expired(self._clock())
            and _says(found.identity) == _says(identity)
        )


class _Known:
    def __init__(self, tokens: Iterable[KnownToken]) -> None:
        known = list(tokens)
        # Looked up by hash: how long that takes tells only about hashes, and nobody can choose
        # those.
        self.by_hash = {each.sha256: each for each in known}
        self.by_id = {each.id: each for each in known}


def _says(identity: Identity) -> tuple[object, ...]:
    """What permissions depend on. When it expires may differ: what is handed out is good for a
    shorter time.
    """
    return identity.name, identity.groups, dict(identity.attributes)


def read_tokens(path: Path) -> list[KnownToken]:
    """All tokens of a file. Raises: BadRequest, which says in which line it is broken."""
    return [token for _, token in _lines(path) if token is not None]


def create_token(
    path: Path,
    principal: str,
    groups: Iterable[str] = (),
    attributes: Mapping[str, str | tuple[str, ...]] | None = None,
    expires: datetime | None = None,
) -> tuple[str, KnownToken]:
    """Add a token to the file, which is made where it is missing. The token itself is in no other
    place than the answer.

    Raises: BadRequest when the file or the principal cannot be used.
    """
    check_principal(principal)
    # 256 random bits cannot be guessed, however quick the hash is: a slow one, as passwords need,
    # would only cost time.
    token = _PREFIX + secrets.token_urlsafe(32)
    with _only_one(path):
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
    """Take the token of that id, or all of that principal, out of the file. Raises: NotFound,
    BadRequest.
    """
    with _only_one(path):
        lines = _lines(path)
        tokens = [known for _, known in lines if known is not None]
        revoked = [each for each in tokens if each.id == id_or_principal]
        revoked = revoked or [each for each in tokens if each.principal == id_or_principal]
        if not revoked:
            raise NotFound(
                f"{path} has no token of {id_or_principal!r}: `sparkport token list` shows those that there are"
            )
        _write(path, [line for line, known in lines if known not in revoked])
    return revoked


def check_principal(name: str) -> None:
    """Raises: BadRequest for names that mean something else in grants."""
    if not name.strip() or name == "*" or name.startswith("group:") or not name.isprintable():
        raise BadRequest(
            f"{name!r} cannot be the name of a principal: it must not be empty, * or begin with group:"
        )


def _lines(path: Path) -> list[tuple[str, KnownToken | None]]:
    """Each line as it is, and the token in it."""
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
            _moment(values.get("created")),
            _moment(values.get("expires")),
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BadRequest(
            f"{where}: this is no token, which are lines that `sparkport token create` writes"
        ) from error
    if unknown:  # perhaps a misspelt `expires`, without which it would be good for ever
        raise BadRequest(f"{where}: a token has no {min(unknown)!r}")
    if len(token.sha256) != 64:
        raise BadRequest(
            f"{where}: sha256 must be 64 hexadecimal digits: the hash of a token, not the token itself"
        )
    check_principal(token.principal)
    return token


def _encode(token: KnownToken) -> str:
    values: dict[str, Any] = {"id": token.id, "principal": token.principal}
    values |= {"groups": list(token.groups)} if token.groups else {}
    values |= {"attributes": dict(token.attributes)} if token.attributes else {}
    moments = {"created": token.created, "expires": token.expires}
    values |= {name: moment.isoformat() for name, moment in moments.items() if moment is not None}
    return json.dumps({**values, "sha256": token.sha256}, ensure_ascii=False) + "\n"


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _attribute(value: object) -> str | tuple[str, ...]:
    return tuple(_text(each) for each in value) if isinstance(value, list) else _text(value)


def _moment(value: object) -> datetime | None:
    if value is None:
        return None
    moment = datetime.fromisoformat(
        _text(value).replace("Z", "+00:00")
    )  # Python 3.10 does not know Z
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Two commands at once must not lose each other's tokens. The lock ends with its process,
    however that ends.
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
    """Put the new file in place of the old one, whole or not at all. Its owner and permissions
    stay.
    """
    try:
        target = path.resolve()  # a link stays one
        handle, name = tempfile.mkstemp(
            prefix=f".{path.name}.", dir=target.parent
        )  # for the owner only
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                _same_permissions(target, name)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise BadRequest(
            f"the file of tokens {path} cannot be written: {error.strerror}"
        ) from error


def _same_permissions(old: Path, new: str) -> None:
    """The server may run as another user than the one who manages its tokens, who has let it read
    the file.
    """
    found = old.stat()
    os.chmod(new, found.st_mode & 0o777)
    if (found.st_uid, found.st_gid) != (os.getuid(), os.getgid()):
        os.chown(new, found.st_uid, found.st_gid)
