"""What the hypernetwork is told about a client: features of its data, or merely who it is.

The features themselves are computed by the client (`framp.client.describe`); here they are standardised over the
training clients, because mean features of a random network are nearly alike for everybody.
"""

from collections.abc import Callable
from typing import Protocol, final

import torch
from torch import Tensor

from framp.config import Config

_CLIP = 5.0
_CHUNK = 1 << 14


class Descriptors(Protocol):
    """The hypernetwork's inputs."""

    @property
    def clients(self) -> int:
        """Number of registered clients."""

    @property
    def dimensions(self) -> int:
        """Length of a descriptor."""

    def of(self, client: int) -> Tensor:
        """Return one client's descriptor."""

    def mean(self) -> Tensor:
        """Return the descriptor of the average client, from which the Union model is generated."""


@final
class Features:
    """Descriptors made from data; `raw` holds one row a client and is kept as it is."""

    def __init__(self, raw: Tensor, standardise: bool) -> None:
        self.raw = raw
        self.centre, self.scale = torch.zeros(raw.shape[1]), torch.ones(raw.shape[1])
        if standardise:
            mean = _chunked_mean(raw, lambda rows: rows)
            variance = _chunked_mean(raw, lambda rows: (rows - mean).square())
            self.centre = mean.float()
            self.scale = variance.sqrt().clamp(min=1e-8).float()
        self._mean = _chunked_mean(raw, lambda rows: self.seen(rows.float())).float()

    @staticmethod
    def from_data() -> bool:
        """Ask the clients for features."""
        return True

    @classmethod
    def configured(cls, config: Config, raw: Tensor) -> "Features":
        """Standardise unless the configuration says otherwise."""
        return cls(raw, config.generation.standardise)

    @property
    def clients(self) -> int:
        """Number of registered clients."""
        return len(self.raw)

    @property
    def dimensions(self) -> int:
        """Length of a descriptor."""
        return self.raw.shape[1]

    def seen(self, raw: Tensor) -> Tensor:
        """Return raw features as the hypernetwork sees them: also those of clients that came later."""
        return ((raw - self.centre) / self.scale).clamp(-_CLIP, _CLIP)

    def of(self, client: int) -> Tensor:
        """Return one client's standardised descriptor."""
        return self.seen(self.raw[client])

    def mean(self) -> Tensor:
        """Return the mean of the standardised descriptors."""
        return self._mean


@final
class OneHot:
    """Descriptors that say only who the client is; an unseen client has none."""

    def __init__(self, clients: int) -> None:
        self.clients = self.dimensions = clients

    @staticmethod
    def from_data() -> bool:
        """Ask the clients for nothing."""
        return False

    @classmethod
    def configured(cls, config: Config, raw: Tensor) -> "OneHot":
        """Take one dimension a client."""
        return cls(len(raw))

    def of(self, client: int) -> Tensor:
        """Return the unit vector of a client."""
        vector = torch.zeros(self.dimensions)
        vector[client] = 1
        return vector

    def mean(self) -> Tensor:
        """Return the mean of all unit vectors."""
        return torch.full((self.dimensions,), 1 / self.dimensions)


def _chunked_mean(rows: Tensor, transform: Callable[[Tensor], Tensor]) -> Tensor:
    """Average over clients in float64 without a second copy of the registry."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for start in range(0, len(rows), _CHUNK):
        total += transform(rows[start : start + _CHUNK].double()).double().sum(dim=0)
    return total / len(rows)
