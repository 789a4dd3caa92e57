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

    def blank(self, dtype: torch.dtype, samples: int | None = None) -> Graph:
        """Return a path of some nodes without features; unless told, of three of which two are asked about."""
        nodes = torch.arange(samples or 3)
        neighbours = torch.stack([nodes - 1, nodes + 1], dim=1).reshape(-1)[1:-1]
        ends = torch.tensor([0, 2 * len(nodes) - 2])
        starts = torch.cat([ends[:1], 2 * nodes[1:] - 1, ends[1:]])
        path = Graph.of(torch.zeros(len(nodes), self.features, dtype=dtype), starts, neighbours)
        return path if samples else Graph(path.x, path.adjacency, nodes[:2])

    def entrance(self, inputs: Any) -> Tensor:
        """Return the tensor whose dimension 1 has what the first layer takes in."""
        assert isinstance(inputs, Graph)
        return inputs.x


Kind = Images | Nodes
