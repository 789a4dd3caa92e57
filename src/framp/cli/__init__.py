"""The command line."""

from framp.cli.entry import main

__all__ = ["main"]
