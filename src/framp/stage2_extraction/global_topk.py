"""Adaptive extraction (section 4.2): the ⌊γ·d⌋ weights of largest magnitude, with one threshold over all layers."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from framp.budgets import Budget
from framp.config import Config
from framp.stage2_extraction.threshold import top_indices


@final
@dataclass(frozen=True)
class GlobalTopK:
    """M = 1[|w| ≥ θ], with ties cut so that exactly k entries are kept."""

    @classmethod
    def configured(cls, config: Config) -> "GlobalTopK":
        """Take nothing from the configuration."""
        return cls()

    def granted(self, budget: Budget) -> Budget:
        """Keep to the client's budget."""
        return budget

    def select(self, weights: Tensor, budget: Budget) -> Tensor | None:
        """Return the indices of the largest magnitudes."""
        limit = budget.limit(weights.numel())
        return None if limit == weights.numel() else top_indices(weights, limit)
