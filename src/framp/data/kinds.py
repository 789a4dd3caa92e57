"""What kind of thing a sample is: what networks are built for, and tried on before there are data."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from framp.data.graph import Graph


@dataclass(frozen=True)
class Images:
    """Images [batch, channels, height, width]."""

    channels: int
    height: int
    width: int

    def blank(self, dtype: torch.dtype, samples: int = 2) -> Tensor:
        """Return some blank images."""
        return torch.zeros(samples, self.channels, self.height, self.width, dtype=dtype)

    def entrance(self, inputs: Any) -> Tensor:
        """Return the tensor whose dimension 1 has what the first layer takes in."""
        assert isinstance(inputs, Tensor)
        return inputs


@dataclass(frozen=True)
class Nodes:
    """Nodes of a graph, each with some features."""

    features: int

    def blank(self, dtype: torch.dtype, samples: int = 2) -> Graph:
        """Return some nodes without features, each joined to the next."""
        nodes = torch.arange(samples)
        neighbours = torch.stack([nodes - 1, nodes + 1], dim=1).reshape(-1)[1:-1]
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), 2 * nodes[1:] - 1, torch.tensor([2 * samples - 2])])
        return Graph.of(torch.zeros(samples, self.features, dtype=dtype), starts, neighbours)

    def entrance(self, inputs: Any) -> Tensor:
        """Return the tensor whose dimension 1 has what the first layer takes in."""
        assert isinstance(inputs, Graph)
        return inputs.x


Kind = Images | Nodes
