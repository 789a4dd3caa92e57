"""What is put to use of a vector that goes on learning: its running average over the rounds.

Which clients happened to take part in the last round moves a shared vector more than one round teaches it.
"""

from typing import final

import torch
from torch import Tensor


@final
class Served:
    """Follows a vector; with a weight of 1 for the newest round it is that vector, and takes no memory of its own."""

    def __init__(self, vector: Tensor, newest: float) -> None:
        self._followed, self._newest = vector, newest
        self.vector = vector if newest == 1 else vector.clone()
        self._rounds = torch.zeros((), dtype=torch.int64)

    def follow(self) -> None:
        """Take a round in; while it would weigh more than the newest should, the t-th round weighs as much as t."""
        if self.vector is not self._followed:
            self._rounds += 1
            self.vector.lerp_(self._followed, max(self._newest, 2 / (int(self._rounds) + 1)))

    def state(self) -> dict[str, Tensor]:
        """Return the average and the number of rounds in it; nothing where it is the vector itself."""
        if self.vector is self._followed:
            return {}
        return {"served.vector": self.vector, "served.rounds": self._rounds}
