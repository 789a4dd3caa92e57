"""How tensors are cut into blocks, and where a block-wise head keeps what belongs to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from framp.layout import Entry


@dataclass(frozen=True)
class Cut:
    """One tensor's place in the flat vector, cut into blocks of one length."""

    start: int
    stop: int
    length: int
    """Entries of a block; the tensor's last one may have fewer."""
    latent: int
    """Numbers of a block's code."""
    codes_from: int
    """The first of the codes' rows that belong to the tensor."""
    basis_from: int
    """Where its basis begins among all of them; a block that is its own code needs none."""

    @property
    def count(self) -> int:
        """Number of blocks."""
        return ceil((self.stop - self.start) / self.length)

    @property
    def complete(self) -> bool:
        """Whether a code has as many numbers as a block has entries, and is the block."""
        return self.latent == self.length

    @property
    def codes(self) -> slice:
        """The codes' rows that belong to the tensor."""
        return slice(self.codes_from, self.codes_from + self.count * self.latent)

    @property
    def basis(self) -> slice:
        """The place of the tensor's basis."""
        return slice(self.basis_from, self.basis_from + (0 if self.complete else self.latent * self.length))

    def of(self, bases: Tensor) -> Tensor:
        """Return the tensor's basis [latent, length] as a view, if it has one."""
        return bases[self.basis].view(self.latent, self.length)

    def add(self, vector: Tensor, codes: Tensor, bases: Tensor) -> None:
        """Add to the tensor's entries of a flat vector what the codes [blocks, latent] stand for."""
        tensor = vector[self.start : self.stop]
        whole = len(tensor) // self.length
        even, rest = tensor[: whole * self.length].view(whole, self.length), tensor[whole * self.length :]
        if self.complete:
            even += codes[:whole]
            rest += codes[whole:].flatten()[: len(rest)]
        else:
            basis = self.of(bases)
            even.addmm_(codes[:whole], basis)
            rest += (codes[whole:] @ basis[:, : len(rest)]).flatten()

    def spread(self, places: slice | Tensor, changes: Tensor) -> tuple[slice, Tensor]:
        """Lay changes at some ascending places of the tensor out as [participants, blocks, length].

        Returns the codes' rows of these blocks, from the first with a change to the last, and their changes.
        """
        first, last = (places.start, places.stop - 1) if isinstance(places, slice) else places[[0, -1]].tolist()
        low, high = first // self.length, last // self.length + 1
        begin = low * self.length
        found = torch.zeros(len(changes), (high - low) * self.length, dtype=changes.dtype)
        here = slice(first - begin, last + 1 - begin) if isinstance(places, slice) else places - begin
        found[:, here] = changes
        rows = slice(self.codes_from + low * self.latent, self.codes_from + high * self.latent)
        return rows, found.view(len(changes), high - low, self.length)


def cuts(entries: Sequence[Entry], block: int, latent: int) -> list[Cut]:
    """Cut tensors into their rows, longer rows into as few equal parts as have at most `block` entries."""
    found: list[Cut] = []
    codes_from = basis_from = 0
    for entry in entries:
        row = max((entry.stop - entry.start) // max(entry.shape[0], 1), 1) if entry.shape else 1
        length = ceil(row / ceil(row / block))
        found.append(Cut(entry.start, entry.stop, length, min(latent, length), codes_from, basis_from))
        codes_from, basis_from = found[-1].codes.stop, found[-1].basis.stop
    return found
