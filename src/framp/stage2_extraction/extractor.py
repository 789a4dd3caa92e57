"""The contract of stage 2: which entries fit a client's budget."""

from typing import Protocol

from torch import Tensor

from framp.budgets import Budget


class Extractor(Protocol):
    """Chooses a submodel's entries."""

    def granted(self, budget: Budget) -> Budget:
        """Return the budget that the method works with, for a client that can hold `budget`."""

    def select(self, weights: Tensor, budget: Budget) -> Tensor | None:
        """Return ascending int32 indices into the maskable weights, ⌊γ·d⌋ at most; None stands for all of them."""
