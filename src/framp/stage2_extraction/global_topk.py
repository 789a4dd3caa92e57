"""Adaptive extraction (section 4.2): the ⌊γ·d⌋ weights of largest magnitude, with one threshold over all layers."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from framp.budgets import Budget
from framp.config import Config
from framp.stage2_extraction.extractor import Selection, Unlearned
from framp.stage2_extraction.network import Network
from framp.stage2_extraction.threshold import top_indices


@final
@dataclass(frozen=True)
class GlobalTopK(Unlearned):
    """M = 1[|w| ≥ θ], with ties cut so that exactly k entries are kept."""

    @classmethod
    def configured(cls, config: Config, network: Network) -> "GlobalTopK":
        """Take nothing from the configuration."""
        return cls()

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose the largest magnitudes."""
        limit = budget.limit(weights.numel())
        return Selection(None if limit == weights.numel() else top_indices(weights, limit))
