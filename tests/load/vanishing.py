"""A client process that dies in the midst of a scan and of a write; its arguments are location,
catalog and token.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

from tests.load.serving import SCHEMA
from tests.load.worker import ROWS, SHARED
from tests.server.mutations import aimed, flight_data
from tests.server.raw_client import RawClient, path, ticket_message


def main() -> None:
    location, catalog, token = sys.argv[1:]
    headers = {"authorization": f"Bearer {token}"}
    client = RawClient(location)
    (endpoint, *_) = client.endpoints(path(catalog, SCHEMA, "big"), headers=headers)
    scan = client.open("DoGet", ticket_message(endpoint.ticket.ticket), headers)
    rows = [{"id": -number, "owner": 9_999, "n": 0, "text": "never"} for number in range(100)]
    request = aimed(flight_data(ROWS, rows), path(catalog, SCHEMA, SHARED[0]), "insert")

    def messages() -> Iterator[bytes]:
        yield from request.messages
        threading.Event().wait(60)

    write = client.open("DoExchange", messages(), {**headers, **request.headers})
    next(scan), next(write)
    os._exit(0)


if __name__ == "__main__":
    main()
