"""Nodes of subgraphs, each seen inside its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from framp.data.graph import Graph
from framp.data.kinds import Nodes
from framp.data.samples import Batch


@dataclass(frozen=True, eq=False)
class Subgraph:
    """The nodes of one or several subgraphs that are asked about; each subgraph is one batch."""

    graphs: Sequence[Graph]
    answers: Sequence[Tensor]
    """Of each graph, the class numbers int64 of the nodes asked about."""

    @property
    def kind(self) -> Nodes:
        """Nodes with some number of features."""
        return Nodes(self.graphs[0].x.shape[1])

    @property
    def labels(self) -> Tensor:
        """The class numbers of all graphs' nodes."""
        return torch.cat(list(self.answers))

    def __len__(self) -> int:
        return sum(map(len, self.answers))

    def in_order(self, batch: int, dtype: torch.dtype = torch.float32) -> Iterator[Batch]:
        """Yield each subgraph, whole."""
        for graph, labels in zip(self.graphs, self.answers, strict=True):
            yield graph.to(dtype), labels

    def shuffled(self, batch: int, order: np.random.Generator, dtype: torch.dtype = torch.float32) -> Iterator[Batch]:
        """Yield each subgraph, whole: there is nothing to draw."""
        yield from self.in_order(batch, dtype)
