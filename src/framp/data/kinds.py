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

    def blank(self, dtype: torch.dtype) -> Tensor:
        """Return two blank images."""
        return torch.zeros(2, self.channels, self.height, self.width, dtype=dtype)

    def entrance(self, inputs: Any) -> Tensor:
        """Return the tensor whose dimension 1 has what the first layer takes in."""
        assert isinstance(inputs, Tensor)
        return inputs


@dataclass(frozen=True)
class Nodes:
    """Nodes of a graph, each with some features."""

    features: int

    def blank(self, dtype: torch.dtype) -> Graph:
        """Return a path of three nodes without features, of which the first two are asked about."""
        x, starts, neighbours = torch.zeros(3, self.features, dtype=dtype), [0, 1, 3, 4], [1, 0, 2, 1]
        path = Graph.of(x, torch.tensor(starts), torch.tensor(neighbours))
        return Graph(path.x, path.adjacency, torch.tensor([0, 1]))

    def entrance(self, inputs: Any) -> Tensor:
        """Return the tensor whose dimension 1 has what the first layer takes in."""
        assert isinstance(inputs, Graph)
        return inputs.x


Kind = Images | Nodes
