"""The status page: what the server is doing, for people and for Prometheus.

It needs only the standard library.
"""

from sparkport.server.http.listen import StatusServer, parse_address

__all__ = ["StatusServer", "parse_address"]
