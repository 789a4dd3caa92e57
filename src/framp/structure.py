"""Which entries of a network belong to which channels.

Channels that are added to one another, as around a shortcut, live and die together: they form one group. What the
samples bring and what the classes need is never cut. `framp.tracing` reads it off a network.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from framp.layout import Entry, ParameterLayout


@dataclass(frozen=True)
class Segment:
    """A stretch of a tensor's dimension: some channels of a group, each with as many neighbouring places as `block`."""

    group: int | None
    """None: never cut."""
    channels: int
    block: int = 1


Axis = tuple[Segment, ...]
"""What lies along one dimension of a tensor."""


@dataclass(frozen=True)
class Structure:
    """The groups of channels of a network, and where each of them lies in each of its parameters."""

    widths: tuple[int, ...]
    """How many channels each group has."""
    axes: tuple[tuple[Axis, ...], ...]
    """Of each entry of the layout, of each of its dimensions."""
    used: tuple[bool, ...]
    """Which entries took part in the run."""
    classes: tuple[int | None, ...]
    """Of each entry, which of its dimensions runs over the classes."""

    def positions(self, entry: int, kept: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return which places along each dimension of an entry are kept, given the kept channels of each group."""
        return [_positions(axis, kept) for axis in self.axes[entry]]

    def count(self, layout: ParameterLayout, kept_widths: Sequence[int]) -> int:
        """Return how many maskable parameters a network has that keeps some channels of each group."""
        total = 0
        for number, entry in enumerate(layout.entries):
            if entry.stop <= layout.maskable and self.used[number]:
                total += int(np.prod([_length(axis, kept_widths) for axis in self.axes[number]], dtype=np.int64))
        return total


def flat(entry: Entry, positions: Sequence[np.ndarray]) -> np.ndarray:
    """Return the ascending places in the flat vector of the kept part of an entry."""
    found = np.zeros(1, dtype=np.int64)
    for size, along in zip(entry.shape, positions, strict=True):
        found = (found[:, None] * size + along[None, :]).reshape(-1)
    return found + entry.start


def _positions(axis: Axis, kept: Sequence[np.ndarray]) -> np.ndarray:
    parts, start = [], 0
    for segment in axis:
        channels = np.arange(segment.channels) if segment.group is None else kept[segment.group]
        parts.append((start + channels[:, None] * segment.block + np.arange(segment.block)).reshape(-1))
        start += segment.channels * segment.block
    return np.concatenate(parts)


def _length(axis: Axis, widths: Sequence[int]) -> int:
    return sum(
        (segment.channels if segment.group is None else widths[segment.group]) * segment.block for segment in axis
    )
