"""Errors that a user can mend: one line that says what, where and what to do.

The command line prints them without a traceback and exits with code 2.
"""

import difflib
from collections.abc import Iterable


class FrampError(Exception):
    """Something that the user can mend. The message is one line: what, where, what to do."""


class ConfigError(FrampError):
    """A setting that is unknown, malformed or contradicts another one."""


class DataError(FrampError):
    """Data that is missing, malformed or too little for the federation asked for."""


class ModelError(FrampError):
    """A network that cannot take part, and why."""


class BudgetError(FrampError):
    """A submodel larger than its client's budget."""


class CheckpointError(FrampError):
    """A checkpoint that is missing, truncated or damaged."""


class RunFolderError(FrampError):
    """A run folder that cannot be used for what was asked."""


class WireError(FrampError):
    """A message that cannot be encoded, or bytes that are no message."""


class OtherIndexSetError(WireError):
    """A difference from an index set that the receiver does not have; the sender has to send the whole set."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that `name` is not a known `kind`, and suggest the nearest name."""
    choices = sorted(known)
    nearest = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(choices)}"
    return f"unknown {kind} '{name}'; {hint}"


def listed(names: Iterable[str], last: str) -> str:
    """Join names as a sentence does: "metis, louvain or random"."""
    *others, final = names
    return f"{', '.join(others)} {last} {final}" if others else final
