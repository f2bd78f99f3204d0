"""The command line: `sparkport serve` and its smaller companions."""

from sparkport.cli.commands import main

__all__ = ["main"]
