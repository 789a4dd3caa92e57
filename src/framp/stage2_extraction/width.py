"""Narrower networks: the first channels of every layer (HeteroFL), or a window that moves round by round (FedRolex).

The width ratio is the largest whose network fits the budget. The original rule, r = √γ with ⌈r·n⌉ of n channels, can be
over it; as a switch it is granted what it really takes.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import final

import numpy as np
from torch import Tensor

from framp.budgets import Budget
from framp.config import Config
from framp.errors import BudgetError
from framp.stage2_extraction.extractor import Selection, Unlearned
from framp.stage2_extraction.network import Network
from framp.stage2_extraction.slices import Slices


@dataclass(frozen=True)
class Width(Unlearned):
    """What both have in common: how narrow."""

    slices: Slices
    original: bool
    """Whether r = √γ, whatever it takes."""

    def granted(self, budget: Budget) -> Budget:
        """Keep to the client's budget, or report what the original rule takes."""
        limit, maskable = budget.limit(self.slices.layout.maskable), self.slices.layout.maskable
        if self.original:
            ratio = Fraction(sqrt(budget.fraction)).limit_denominator(1 << 20)
            return Budget(budget.name, Fraction(self.slices.count(ratio), maskable))
        if self.slices.largest(limit) is None:
            least = self.slices.count(Fraction(1, max(self.slices.structure.widths, default=1)))
            raise BudgetError(
                f"budget {budget.name} of a model with {maskable} parameters holds {limit} of them, and a network of "
                f"one channel a layer has {least}; raise the budget or model.width (of a gcn model.hidden)"
            )
        return budget

    def narrowed(self, budget: Budget) -> list[int]:
        """Return how many channels of each group a budget holds."""
        ratio = self.slices.largest(budget.limit(self.slices.layout.maskable))
        assert ratio is not None, "granted() has been asked"
        return self.slices.widths(ratio)


@final
class WidthPrefix(Width):
    """The first channels of every layer."""

    @classmethod
    def configured(cls, config: Config, network: Network) -> "WidthPrefix":
        """Trace the network's channels."""
        slices = Slices(network.structure(), network.layout).tried(network)
        return cls(slices, config.width.rule == "original")

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose the network of the first channels."""
        return self.slices.cut([np.arange(width) for width in self.narrowed(budget)])


@final
@dataclass(frozen=True)
class WidthRolling(Width):
    """A window of channels that starts one earlier each round, and wraps around."""

    last_window: bool
    """Whether a model in use has the window of the last round, as it was trained; otherwise the first channels."""

    @classmethod
    def configured(cls, config: Config, network: Network) -> "WidthRolling":
        """Trace the network's channels."""
        slices = Slices(network.structure(), network.layout).tried(network)
        return cls(slices, config.width.rule == "original", config.width.test_window == "last")

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose the network of the round's window; the first round's is that of the first channels."""
        turn = max(round - 1, 0) if self.last_window or not in_use else 0
        groups = zip(self.narrowed(budget), self.slices.structure.widths, strict=True)
        return self.slices.cut([window(turn, kept, width) for kept, width in groups])


def window(turn: int, kept: int, width: int) -> np.ndarray:
    """Return the channels {−t mod n, …, (−t + k − 1) mod n}, ascending."""
    return np.sort((np.arange(kept) - turn) % width)
