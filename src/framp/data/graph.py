"""What a graph network takes: nodes with features, who neighbours whom, and which nodes are asked about."""

import warnings
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor


@final
class Graph:
    """Features `x` [nodes, F], and the normalised adjacency D^-½(A + I)D^-½, sparse and symmetric.

    Layers of PyTorch Geometric take `x` and `edge_index`; `framp.models.GCN` takes `propagated`.
    """

    def __init__(
        self, x: Tensor, adjacency: Tensor, rows: Tensor | None = None, propagated: Tensor | None = None
    ) -> None:
        self.x, self.adjacency, self.rows = x, adjacency, rows
        self._propagated = propagated

    @classmethod
    def of(cls, x: Tensor, starts: Tensor, neighbours: Tensor) -> "Graph":
        """Normalise an adjacency: `neighbours[starts[i]:starts[i + 1]]` are those of node i, both ways, no loops."""
        nodes = len(x)
        degrees = starts.diff()
        scale = (degrees + 1).to(x.dtype).rsqrt()
        own = torch.arange(nodes)
        rows = torch.cat([own.repeat_interleave(degrees), own])
        columns = torch.cat([neighbours.long(), own])
        order = torch.argsort(rows * nodes + columns)
        rows, columns = rows[order], columns[order]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            adjacency = torch.sparse_csr_tensor(
                (starts + torch.arange(nodes + 1)).int(),
                columns.int(),
                scale[rows] * scale[columns],
                (nodes, nodes),
                check_invariants=False,
            )
        return cls(x, adjacency)

    @property
    def propagated(self) -> Tensor:
        """The features after one step to the neighbours; computed once."""
        if self._propagated is None:
            self._propagated = propagate(self.adjacency, self.x)
        return self._propagated

    @cached_property
    def edge_index(self) -> Tensor:
        """The edges [2, E] as PyTorch Geometric has them: both ways, without loops."""
        starts, targets = self.adjacency.crow_indices().long(), self.adjacency.col_indices().long()
        sources = torch.arange(len(self.x)).repeat_interleave(starts.diff())
        edges = torch.stack([sources, targets])
        return edges[:, sources != targets]

    def carrying(self, x: Tensor) -> "Graph":
        """Return the same graph with other features."""
        return Graph(x, self.adjacency, self.rows)

    def asking(self, rows: Tensor) -> "Graph":
        """Return the same graph, asked about some of its nodes."""
        return Graph(self.x, self.adjacency, rows, self.propagated)

    def asked(self, values: Tensor) -> Tensor:
        """Return the rows of the nodes that are asked about; of all, where none are named."""
        return values if self.rows is None else values.index_select(0, self.rows)

    def to(self, dtype: torch.dtype) -> "Graph":
        """Return the graph in some precision."""
        if self.x.dtype == dtype:
            return self
        return Graph(self.x.to(dtype), self.adjacency.to(dtype), self.rows)


def propagate(adjacency: Tensor, x: Tensor) -> Tensor:
    """Return A·x of a symmetric sparse A."""
    propagated: Tensor = _Propagation.apply(adjacency, x)  # type: ignore[no-untyped-call]
    return propagated


class _Propagation(torch.autograd.Function):
    """A·x, whose gradient is A·g: torch would transpose A in each step, which takes several times as long."""

    @staticmethod
    def forward(context: Any, adjacency: Tensor, x: Tensor) -> Tensor:
        """Return A·x."""
        context.adjacency = adjacency
        return adjacency @ x

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[None, Tensor]:
        """Return A·g."""
        return None, context.adjacency @ gradient
