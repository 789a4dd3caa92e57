"""A graph convolutional network: H ← ReLU(A·H·W + b), A the normalised adjacency; the last layer is the classifier.

A·(H·W) = (A·H)·W, so a layer is one step to the neighbours and then a linear layer: the first step is the same in all
of training and taken once, and the classifier is a linear layer over features, as prototypes need it.
"""

from torch import Tensor, nn

from framp.data.graph import Graph


class GraphLayer(nn.Module):
    """One step to the neighbours, a linear layer, ReLU and dropout."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.linear = glorot(nn.Linear(inputs, outputs))
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph: Graph) -> Graph:
        """Return the graph with new features."""
        return graph.carrying(self.dropout(self.linear(graph.propagated).relu()))


class GCN(nn.Module):
    """Graph convolutions with `hidden` features in between; no norm."""

    def __init__(self, features: int, classes: int, layers: int = 4, hidden: int = 128, dropout: float = 0.0) -> None:
        super().__init__()
        inputs = [features] + [hidden] * (layers - 2)
        self.layers = nn.ModuleList(GraphLayer(before, hidden, dropout) for before in inputs)
        self.classifier = glorot(nn.Linear(hidden, classes))
        self.unit_widths = (hidden,) * (layers - 1)

    def units(self) -> list[nn.Module]:
        """Return the steps after which a shallower network could end."""
        return list(self.layers)

    def pooled(self, graph: Graph) -> Tensor:
        """Return the features of the nodes asked about, as a classifier takes them."""
        return graph.asked(graph.propagated)

    def features(self, graph: Graph) -> Tensor:
        """Encode the nodes asked about."""
        for layer in self.layers:
            graph = layer(graph)
        return self.pooled(graph)

    def head(self, features: Tensor) -> Tensor:
        """Classify features."""
        logits: Tensor = self.classifier(features)
        return logits

    def forward(self, graph: Graph) -> Tensor:
        """Return the logits."""
        return self.head(self.features(graph))


def glorot(layer: nn.Linear) -> nn.Linear:
    """Start a layer as graph convolutions usually do: Glorot's uniform weights, no bias."""
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
