"""The ablation row "Layerwise": the weights of largest magnitude within each weight tensor, ⌊γ·n⌋ of n."""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from framp.budgets import Budget
from framp.config import Config
from framp.layout import Entry
from framp.stage2_extraction.extractor import Selection, Unlearned
from framp.stage2_extraction.network import Network
from framp.stage2_extraction.threshold import top_indices


@final
@dataclass(frozen=True)
class LayerwiseTopK(Unlearned):
    """TopK inside each tensor. A tensor keeps at least one entry as long as the budget has room for it."""

    entries: tuple[Entry, ...]

    @classmethod
    def configured(cls, config: Config, network: Network) -> "LayerwiseTopK":
        """Take the tensors' places from the layout."""
        layout = network.layout
        return cls(tuple(entry for entry in layout.entries if entry.stop <= layout.maskable))

    def kept(self, budget: Budget) -> list[int]:
        """Return how many entries each tensor keeps: ⌊γ·n⌋, and of the rest one for each that would keep none."""
        sizes = [entry.stop - entry.start for entry in self.entries]
        found = [budget.limit(size) for size in sizes]
        room = budget.limit(sum(sizes)) - sum(found)
        for number in np.flatnonzero(np.array(found) == 0)[:room]:
            found[number] = 1
        return found

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose the largest magnitudes of each tensor."""
        chosen = [
            top_indices(weights[entry.start : entry.stop], kept) + entry.start
            for entry, kept in zip(self.entries, self.kept(budget), strict=True)
            if kept
        ]
        indices = torch.cat(chosen)
        return Selection(None if len(indices) == weights.numel() else indices)
