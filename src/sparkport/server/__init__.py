"""The server: threads, TLS, limits, and the error boundary. No other package imports grpc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkport.server.settings import ServerSettings

if TYPE_CHECKING:
    from sparkport.server.listen import Server as Server
    from sparkport.server.listen import serve as serve

__all__ = ["Server", "ServerSettings", "serve"]


def __getattr__(name: str) -> object:
    # The settings are read for `--help`, which need not wait for grpc and pyarrow.
    if name in ("Server", "serve"):
        from sparkport.server import listen

        return getattr(listen, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
