"""Flags of the commands that are clients of a server; imports nothing of the client."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["DEFAULT_LOCATION", "TOKEN_VARIABLE", "add_client_flags"]

DEFAULT_LOCATION = "grpc://127.0.0.1:50051"
TOKEN_VARIABLE = "SPARKPORT_TOKEN"  # noqa: S105 - where it is, not what it is


def add_client_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the token and for the trusted authority."""
    parser.add_argument(
        "--token",
        help=f"to say who you are; better as {TOKEN_VARIABLE}, which other users of the machine "
        f"do not see",
    )
    parser.add_argument(
        "--ca",
        type=Path,
        metavar="FILE",
        help="PEM file of the authority that signed the certificate",
    )
