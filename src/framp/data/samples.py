"""What a client trains and is tested on, whatever kind of thing its samples are."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from framp.data.kinds import Kind

Batch = tuple[Any, Tensor]
"""What a network's `features` takes, and the label of each row that it returns."""


class Samples(Protocol):
    """Labelled samples of one client, or of all."""

    @property
    def kind(self) -> Kind:
        """What the samples are."""

    @property
    def labels(self) -> Tensor:
        """Class numbers int64, one a sample."""

    def __len__(self) -> int:
        """Return how many samples there are."""

    def in_order(self, batch: int, dtype: torch.dtype = torch.float32) -> Iterator[Batch]:
        """Yield each sample once, in the same order each time."""

    def shuffled(self, batch: int, order: np.random.Generator, dtype: torch.dtype = torch.float32) -> Iterator[Batch]:
        """Yield each sample once, in batches drawn at random."""
