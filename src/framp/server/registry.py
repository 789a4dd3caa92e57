"""Who there is: one descriptor, one budget and one sample count per client (0.5 KB), and nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from framp import rng
from framp.budgets import Budget
from framp.errors import DataError
from framp.messages import Description


@dataclass(frozen=True, eq=False)
class Registry:
    """The registered clients."""

    budgets: tuple[Budget, ...]
    group: np.ndarray
    """[clients]: which of the budgets each client has."""
    samples: np.ndarray
    """[clients]: how many training samples each client said it has."""
    descriptors: Tensor
    """[clients, 128]: raw, as the clients sent them."""

    @classmethod
    def enrol(cls, budgets: Iterable[Budget], group: np.ndarray, descriptions: Iterable[Description]) -> "Registry":
        """Register clients by their descriptions, in whatever order those arrive; they are not trusted."""
        ordered = sorted(descriptions, key=lambda description: description.client)
        if [description.client for description in ordered] != list(range(len(group))):
            raise DataError(f"not each of the {len(group)} clients enrolled once; start again")
        for description in ordered:
            if description.samples < 1:
                raise DataError(f"client {description.client} has no training samples; give it some or leave it out")
            if description.vector.shape != ordered[0].vector.shape or not description.vector.isfinite().all():
                raise DataError(
                    f"client {description.client} sent no valid descriptor; look at its data, or leave it out"
                )
        return cls(
            tuple(budgets),
            group,
            np.array([description.samples for description in ordered], dtype=np.int64),
            torch.stack([description.vector for description in ordered]),
        )

    def __len__(self) -> int:
        return len(self.group)

    def budget(self, client: int) -> Budget:
        """Return a client's budget."""
        return self.budgets[int(self.group[client])]

    def sample(self, participants: int, seed: int, round: int) -> list[int]:
        """Draw a round's participants, uniformly without replacement, in time that the registry's size leaves alone."""
        draw = rng.stream(seed, round, rng.NOBODY, "participants")
        return [int(client) for client in draw.choice(len(self), participants, replace=False, shuffle=False)]
