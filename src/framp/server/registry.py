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

_INCOMPLETE = "not each of the {} clients enrolled once; start again"


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
        """File clients' descriptions one by one, in whatever order they arrive; they are not trusted."""
        samples = np.zeros(len(group), dtype=np.int64)
        descriptors: Tensor | None = None
        for description in descriptions:
            client, vector = description.client, description.vector
            if not 0 <= client < len(group) or samples[client]:
                raise DataError(_INCOMPLETE.format(len(group)))
            if description.samples < 1:
                raise DataError(f"client {client} has no training samples; give it some or leave it out")
            if descriptors is None:
                descriptors = torch.empty(len(group), *vector.shape, dtype=vector.dtype)
            if vector.shape != descriptors.shape[1:] or not vector.isfinite().all():
                raise DataError(f"client {client} sent no valid descriptor; look at its data, or leave it out")
            samples[client] = description.samples
            descriptors[client] = vector
        if descriptors is None or not samples.all():
            raise DataError(_INCOMPLETE.format(len(group)))
        return cls(tuple(budgets), group, samples, descriptors)

    def __len__(self) -> int:
        return len(self.group)

    def budget(self, client: int) -> Budget:
        """Return a client's budget."""
        return self.budgets[int(self.group[client])]

    def sample(self, participants: int, seed: int, round: int) -> list[int]:
        """Draw a round's participants, uniformly without replacement, in time that the registry's size leaves alone."""
        draw = rng.stream(seed, round, rng.NOBODY, "participants")
        return [int(client) for client in draw.choice(len(self), participants, replace=False, shuffle=False)]
