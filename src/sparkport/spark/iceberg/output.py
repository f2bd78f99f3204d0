"""Small files of a table that are written in one go."""

from __future__ import annotations

import os

from pyiceberg.io import FileIO

from sparkport.spark.iceberg.locations import local_path

__all__ = ["write_durably"]


def write_durably(io: FileIO, location: str, content: bytes) -> None:
    """Write a new file, with the folders that it needs; a local one survives a power cut. Raises:
    OSError.
    """
    local = local_path(location)
    if local is None:
        with io.new_output(location).create() as output:
            output.write(content)
        return
    folder = os.path.dirname(local)
    os.makedirs(folder, exist_ok=True)
    with open(local, "xb") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
