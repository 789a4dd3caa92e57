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
        """Return two joined nodes without features."""
        return Graph.of(torch.zeros(2, self.features, dtype=dtype), torch.tensor([0, 1, 2]), torch.tensor([1, 0]))

    def entrance(self, inputs: Any) -> Tensor:
        """Return the tensor whose dimension 1 has what the first layer takes in."""
        assert isinstance(inputs, Graph)
        return inputs.x


Kind = Images | Nodes
