"""One full model for everybody, moved by the mean of the participants' changes of each entry."""

from collections.abc import Sequence

import torch
from torch import Tensor

from framp.config import Config
from framp.layout import ParameterLayout
from framp.stage1_generation.descriptors import Descriptors
from framp.stage1_generation.served import Served
from framp.updates import Block, MaskedUpdate, blocks


class Shared:
    """w_j ← w_j + rate · (sum of the changes of j) / (number of participants that held j); what nobody held stays."""

    @staticmethod
    def counted(block: Block) -> Tensor | float:
        """Return among how many participants the changes of each entry are shared out."""
        return block.holders

    def __init__(self, initial: Tensor, rate: float = 1.0, served_average: float = 1.0) -> None:
        self.vector, self.rate = initial, rate
        self.served = Served(initial, served_average)

    @classmethod
    def configured(
        cls, config: Config, initial: Tensor, layout: ParameterLayout, descriptors: Descriptors | None
    ) -> "Shared":
        """Start at the initial network."""
        return cls(initial, config.shared.rate, config.shared.served_average)

    def generate(self, client: int) -> Tensor:
        """Return a copy of the shared vector, whoever asks."""
        return self.vector.clone()

    def serve(self, client: int) -> Tensor:
        """Return a copy of what is in use of the shared vector, whoever asks."""
        return self.served.vector.clone()

    def generate_union(self) -> Tensor:
        """Return a copy of what is in use of the shared vector."""
        return self.served.vector.clone()

    def learn(self, updates: Sequence[MaskedUpdate]) -> dict[str, float]:
        """Move each entry by the mean of its changes."""
        for block in blocks(updates):
            part = block.of(self.vector)
            part += self.rate * block.changes.sum(dim=0) / torch.as_tensor(self.counted(block)).clamp(min=1)
            block.put(self.vector, part)
        self.served.follow()
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return the shared vector, and what is served of it."""
        return {"shared": self.vector, **self.served.state()}


class SharedWhereMoved(Shared):
    """FIARSE's mean: over the participants whose training moved entry j, not over all that held it.

    A held entry does not move where its unit is dead, as many are in a small submodel.
    """

    @staticmethod
    def counted(block: Block) -> Tensor:
        """Return how many participants changed each entry."""
        return (block.changes != 0).sum(dim=0)
