"""The hypernetwork for large models: W is a product whose memory does not grow as hidden × entries.

Each tensor is cut into blocks of one length: a row (what one output channel or unit has), or an equal part of a row
that is longer than the configuration allows. All blocks of a tensor share a basis B [latent × length]; block k has a
linear map C_k [latent × hidden] from the features to its code:

    w_k = b_k + Bᵀ C_k f(v)

B starts with orthonormal rows and C at zero. A block with no more entries than a code has numbers is its own code
(B = 1), so for biases and norms this is the full head.

With z_nk = B Δ_nk, a participant's change as codes, the vector-Jacobian product is again exact without autograd:
∂C_k = −mean_n z_nk f_nᵀ, ∂f_n = −Σ_k C_kᵀ z_nk, ∂B = −mean_n Σ_k (C_k f_n) Δ_nkᵀ.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import sqrt
from typing import final

import torch
from torch import Tensor

from framp.layout import ParameterLayout
from framp.settings import GenerationConfig
from framp.stage1_generation.cuts import Cut, cuts
from framp.stage1_generation.hypernetwork import TwoLayers, first_layer, followed
from framp.updates import BLOCK, Block


@final
class BlockwiseHypernetwork(TwoLayers):
    """W is a basis for each tensor times the codes of its blocks."""

    def __init__(
        self,
        inner: Tensor,
        inner_bias: Tensor,
        codes: Tensor,
        bases: Tensor,
        head_bias: Tensor,
        average: Tensor,
        centred: bool,
        cuts: list[Cut],
    ) -> None:
        super().__init__(inner, inner_bias, head_bias, average, centred)
        self.codes, self.bases, self.cuts = codes, bases, cuts
        self._starts = [cut.start for cut in cuts]

    @classmethod
    def configured(
        cls,
        config: GenerationConfig,
        layout: ParameterLayout,
        target: Tensor,
        average: Tensor,
        generator: torch.Generator,
    ) -> "BlockwiseHypernetwork":
        """Start at a conventionally initialised network `target` for everybody, which becomes b; codes are zero."""
        parts = cuts(layout.entries, config.block, config.latent)
        inner, inner_bias = first_layer(config.hidden, target, average, generator)
        codes = torch.zeros(parts[-1].codes.stop, config.hidden, dtype=target.dtype)
        bases = torch.zeros(parts[-1].basis.stop, dtype=target.dtype)
        for cut in parts:
            if not cut.complete:
                draw = torch.randn(cut.length, cut.latent, dtype=target.dtype, generator=generator)
                cut.of(bases).copy_(torch.linalg.qr(draw)[0].T)
        return cls(inner, inner_bias, codes, bases, target, average, config.centred, parts)

    def scatter(self, scales: Tensor, generator: torch.Generator) -> None:
        """Start the codes at random, so that entries have some standard deviation, one for each tensor."""
        self.codes.normal_(generator=generator)
        for cut in self.cuts:
            self.codes[cut.codes] *= scales[cut.start] * sqrt(cut.length / cut.latent)

    def over(self, bias: Tensor, features: Tensor) -> Tensor:
        """Return b + Bᵀ (C f)."""
        vector, codes = bias.clone(), self.codes @ features
        for cut in self.cuts:
            cut.add(vector, codes[cut.codes].view(cut.count, cut.latent), self.bases)
        return vector

    def follow(self, blocks: Iterable[Block], features: Tensor, step: float) -> Tensor:
        """Move the codes and the bases; a block that nobody changed keeps its code."""
        seen = features @ self.codes.T  # C_k f_n, [participants, the codes' rows]
        changed, moves = torch.zeros_like(seen), torch.zeros_like(self.bases)
        for block in blocks:
            for cut, rows, changes in self._by_tensor(block):
                if cut.complete:
                    changed[:, rows] += changes.flatten(1)
                    continue
                changed[:, rows] += (changes @ cut.of(self.bases).T).flatten(1)
                cut.of(moves).addmm_(seen[:, rows].reshape(-1, cut.latent).T, changes.flatten(0, 1))
        pull = followed(self.codes, _touched(changed), features, step)
        self.bases.add_(moves, alpha=step)
        return pull

    def _by_tensor(self, block: Block) -> Iterator[tuple[Cut, slice, Tensor]]:
        """Yield each tensor with changes in a block, the codes' rows concerned, and the changes by its own blocks."""
        rows = block.rows
        first, last = (rows.start, rows.stop - 1) if isinstance(rows, slice) else rows[[0, -1]].tolist()
        for cut in self.cuts[bisect_right(self._starts, first) - 1 : bisect_right(self._starts, last)]:
            places: slice | Tensor
            if isinstance(rows, slice):
                left, right = max(cut.start - first, 0), min(cut.stop, rows.stop) - first
                places = slice(first + left - cut.start, first + right - cut.start)
            else:
                left, right = torch.searchsorted(rows, torch.tensor([cut.start, cut.stop])).tolist()
                places = rows[left:right] - cut.start
            if left < right:
                yield cut, *cut.spread(places, block.changes[:, left:right])

    def state(self) -> dict[str, Tensor]:
        """Return φ as named tensors."""
        return {**super().state(), "head.codes": self.codes, "head.bases": self.bases}


def _touched(changed: Tensor) -> Iterator[Block]:
    """Yield the codes' rows that somebody changed, a number of them at a time."""
    touched = changed.any(dim=0).nonzero().squeeze(1)
    for start in range(0, len(touched), BLOCK):
        rows = touched[start : start + BLOCK]
        yield Block(rows, changed[:, rows], 1.0)
