"""Budgets of work: the weights of largest magnitude against what they cost, in multiply-adds and in parameters.

An entry is scored by |w| / c^p, c the multiply-adds that it costs for one sample (`framp.work`; 1 where it costs none).
The entries of highest score are kept as long as two budgets hold them: ⌊γ·d⌋ parameters, and γ of the full network's
multiply-adds. What is kept is always a beginning of the order by score, so a smaller budget's entries are among a
larger one's.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from framp.budgets import Budget
from framp.config import Config
from framp.errors import BudgetError
from framp.stage2_extraction.extractor import Selection, Unlearned
from framp.stage2_extraction.network import Network
from framp.stage2_extraction.threshold import top_indices
from framp.work import Work


@final
@dataclass(frozen=True)
class CostTopK(Unlearned):
    """TopK on magnitude against cost."""

    work: Work
    exponent: float
    bounded: bool
    """Whether a budget also holds for the multiply-adds; otherwise it holds for the parameters alone."""

    @classmethod
    def configured(cls, config: Config, network: Network) -> "CostTopK":
        """Read off what the network's entries cost."""
        return cls(network.work, config.cost.exponent, config.cost.budget == "both")

    def granted(self, budget: Budget) -> Budget:
        """Keep to the client's budget, or raise if it might not hold a single entry."""
        costliest, limit = max(self.work.uses), self.limit(budget)
        if self.bounded and costliest > limit:
            raise BudgetError(
                f"budget {budget.name} holds {limit} of the network's {self.work.total} multiply-adds, and one entry "
                f"can cost {costliest}; raise the budget, or set cost.budget=parameters"
            )
        return budget

    def limit(self, budget: Budget) -> int:
        """Return how many multiply-adds for one sample a budget holds."""
        return int(budget.fraction * self.work.total)

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose the highest scores."""
        kept = budget.limit(weights.numel())
        if kept == weights.numel():
            return Selection()
        scores = self.scores(weights)
        indices = top_indices(scores, kept)
        return Selection(self._within(scores, indices, self.limit(budget)) if self.bounded else indices)

    def scores(self, weights: Tensor) -> Tensor:
        """Return the weights, each divided by what its cost counts."""
        scores = weights.detach().clone()
        for entry, uses in zip(self.work.entries, self.work.uses, strict=True):
            scores[entry.start : entry.stop] *= max(uses, 1) ** -self.exponent
        return scores

    def _within(self, scores: Tensor, indices: Tensor, limit: int) -> Tensor:
        """Return, of ascending entries, the beginning of their order by score that is within a budget of work."""
        if self.work.of(indices) <= limit:
            return indices
        places = indices.numpy()
        magnitudes, costs = np.abs(scores.numpy()[places]), self.work.each(places)
        # the leading bits of magnitudes are in their order: what they cost together leaves a few to be sorted
        bits = 8 * magnitudes.itemsize
        keys = magnitudes.view(f"u{magnitudes.itemsize}") >> np.uint8(bits - 16)
        below = np.cumsum(np.bincount(keys.astype(np.intp), weights=costs)[::-1])[::-1]
        key = int(np.flatnonzero(below > limit)[-1])
        kept, last = keys > key, np.flatnonzero(keys == key)
        room = limit - (int(below[key + 1]) if key + 1 < len(below) else 0)
        order = last[np.argsort(-magnitudes[last], kind="stable")]
        kept[order[: np.searchsorted(np.cumsum(costs[order]), room, side="right")]] = True
        return torch.from_numpy(places[kept])
