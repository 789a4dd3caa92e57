"""The contract of stage 1: whose full model is it, and how does it learn from updates?"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from framp.updates import MaskedUpdate


class Backbone(Protocol):
    """Holds what the server has learned, and makes full models of it."""

    def generate(self, client: int) -> Tensor:
        """Return the full flat vector of one client's model, to be trained; it belongs to the caller."""

    def serve(self, client: int) -> Tensor:
        """Return the full flat vector of the model that a client is given to use; it belongs to the caller."""

    def generate_union(self) -> Tensor:
        """Return the full flat vector of nobody in particular, the average client's; it belongs to the caller."""

    def learn(self, updates: Sequence[MaskedUpdate]) -> dict[str, float]:
        """Learn from one round's updates, ordered by client id; return what is worth logging."""

    def state(self) -> dict[str, Tensor]:
        """Return all that was learned, as named tensors: the very memory, not copies."""
