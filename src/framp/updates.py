"""One round's updates as a matrix that is never whole: participants × entries, a block of entries at a time.

Each backbone learns by one pass over these blocks, whatever the submodels' shapes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

BLOCK = 1 << 16


class Stored(Protocol):
    """A vector that is kept somewhere and read by ranges."""

    def __len__(self) -> int:
        """Return its length."""

    def read(self, start: int, stop: int) -> Tensor:
        """Return a range of it."""


@dataclass(frozen=True, eq=False)
class MaskedUpdate:
    """What one participant changed (trained minus received), on its submodel's entries alone."""

    client: int
    maskable: int
    indices: Stored | None
    values: Stored
    always: Tensor
    above: int
    """How many entries of the full model always travel."""
    places: Tensor | None = None
    """Where `always` lies among them; None: it is all of them."""


@dataclass(frozen=True, eq=False)
class Block:
    """A range of the flat vector in which somebody was active."""

    rows: slice | Tensor
    """The entries: a range, or an index where few of the range were active."""
    changes: Tensor
    """[participants, entries]: Δ = M ⊙ (trained − received), zero where a participant held nothing."""
    holders: Tensor | float
    """[entries]: how many participants held each entry."""

    def of(self, vector: Tensor) -> Tensor:
        """Return the block's part of a vector or of a matrix's rows: a view of a range, a copy of an index."""
        return vector[self.rows]

    def put(self, vector: Tensor, part: Tensor) -> None:
        """Write a part back that `of` may have copied."""
        if isinstance(self.rows, Tensor):
            vector[self.rows] = part


def blocks(updates: Sequence[MaskedUpdate], size: int = BLOCK) -> Iterator[Block]:
    """Yield the blocks of a round in ascending order, those that nobody held left out."""
    maskable = updates[0].maskable
    edges = np.append(np.arange(0, maskable, size), maskable)
    places = [None if update.indices is None else _edges(update.indices, edges) for update in updates]
    dtype = updates[0].always.dtype
    for number, (start, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        changes = torch.zeros(len(updates), stop - start, dtype=dtype)
        held = torch.zeros(len(updates), stop - start, dtype=torch.bool)
        for row, (update, place) in enumerate(zip(updates, places, strict=True)):
            if update.indices is None or place is None:
                changes[row] = update.values.read(start, stop)
                held[row] = True
            elif place[number + 1] > place[number]:
                first, last = int(place[number]), int(place[number + 1])
                columns = update.indices.read(first, last).long() - start
                changes[row, columns] = update.values.read(first, last)
                held[row, columns] = True
        yield from _dense_or_sparse(start, changes, held)
    above = updates[0].above
    if above:
        changes = torch.zeros(len(updates), above, dtype=dtype)
        held = torch.zeros(len(updates), above, dtype=torch.bool)
        for row, update in enumerate(updates):
            active = slice(None) if update.places is None else update.places
            changes[row, active] = update.always
            held[row, active] = True
        yield Block(slice(maskable, maskable + above), changes, held.sum(dim=0).to(dtype))


def _edges(indices: Stored, edges: np.ndarray) -> np.ndarray:
    return np.searchsorted(indices.read(0, len(indices)).numpy(), edges)


def _dense_or_sparse(start: int, changes: Tensor, held: Tensor) -> Iterator[Block]:
    holders = held.sum(dim=0)
    active = holders.count_nonzero()
    if 2 * active > changes.shape[1]:
        yield Block(slice(start, start + changes.shape[1]), changes, holders.to(changes.dtype))
    elif active:
        columns = holders.nonzero().squeeze(1)
        yield Block(columns + start, changes[:, columns], holders[columns].to(changes.dtype))
