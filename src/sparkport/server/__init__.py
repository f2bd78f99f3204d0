"""The server: the only package that imports grpc. Threads, TLS, limits, and the one error
boundary.
"""

from sparkport.server.listen import Server, ServerSettings, serve

__all__ = ["Server", "ServerSettings", "serve"]
