"""The contract of stage 2: which entries fit a client's budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from framp.budgets import Budget
from framp.layout import Shapes
from framp.updates import MaskedUpdate


@dataclass(frozen=True, eq=False)
class Selection:
    """A submodel's entries. Those below `maskable` count towards the budget."""

    indices: Tensor | None = None
    """Ascending int32 indices into the maskable weights, ⌊γ·d⌋ at most; None stands for all of them."""
    always: Tensor | None = None
    """Ascending places among the entries that always travel; None stands for all of them."""
    shapes: Shapes | None = None
    """Of each entry of the layout, if what is selected is a smaller network; None: it is a mask over the full one."""
    class_rows: Tensor | None = None
    """[2, n]: places among `indices` that belong to one class of the output layer, and which class it is."""


class Extractor(Protocol):
    """Chooses a submodel's entries."""

    def granted(self, budget: Budget) -> Budget:
        """Return the budget that the method works with, for a client that can hold `budget`."""

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose by the maskable weights, for training in a round or (`in_use`) for a model in use after it."""

    def learn(self, updates: Sequence[MaskedUpdate], generate: Callable[[int], Tensor]) -> None:
        """Learn from one round's updates, ordered by client id; `generate` makes a client's full vector once more."""

    def state(self) -> dict[str, Tensor]:
        """Return all that was learned, as named tensors: the very memory, not copies."""


class Unlearned:
    """What extractors have in common that keep to the client's budget and learn nothing."""

    def granted(self, budget: Budget) -> Budget:
        """Keep to the client's budget."""
        return budget

    def learn(self, updates: Sequence[MaskedUpdate], generate: Callable[[int], Tensor]) -> None:
        """Learn nothing."""

    def state(self) -> dict[str, Tensor]:
        """Return nothing: nothing is learned."""
        return {}
