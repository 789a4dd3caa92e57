"""One full model for everybody, moved by the mean over the holders of each entry (algorithms 1.5)."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from framp.config import Config
from framp.layout import ParameterLayout
from framp.stage1_generation.descriptors import Descriptors
from framp.stage1_generation.updates import MaskedUpdate, blocks


@final
class Shared:
    """w_j ← w_j + (sum of the changes of j) / (number of participants that held j); entries nobody held stay."""

    def __init__(self, initial: Tensor) -> None:
        self.vector = initial

    @classmethod
    def configured(
        cls, config: Config, initial: Tensor, layout: ParameterLayout, descriptors: Descriptors | None
    ) -> "Shared":
        """Start at the initial network."""
        return cls(initial)

    def generate(self, client: int) -> Tensor:
        """Return a copy of the shared vector, whoever asks."""
        return self.vector.clone()

    def serve(self, client: int) -> Tensor:
        """Return a copy of the shared vector, whoever asks."""
        return self.vector.clone()

    def generate_union(self) -> Tensor:
        """Return a copy of the shared vector."""
        return self.vector.clone()

    def learn(self, updates: Sequence[MaskedUpdate]) -> dict[str, float]:
        """Move each entry by its holders' mean."""
        for block in blocks(updates):
            part = block.of(self.vector)
            part += block.changes.sum(dim=0) / _at_least_one(block.holders)
            block.put(self.vector, part)
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return the shared vector."""
        return {"shared": self.vector}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take over a saved vector."""
        self.vector.copy_(state["shared"])


def _at_least_one(holders: Tensor | float) -> Tensor | float:
    return holders.clamp(min=1) if isinstance(holders, torch.Tensor) else holders
