"""The channels of graph networks: the package's own, and a user's of PyTorch Geometric's layers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from framp.data.graph import Graph
from framp.data.kinds import Nodes
from framp.errors import ModelError
from framp.layout import ParameterLayout
from framp.models import GCN, MultiExit
from framp.structure import Structure
from framp.tracing import Run, trace

Axes = dict[str, list[list[tuple[Any, ...]]]]


def axes_of(module: nn.Module, run: Run | None = None) -> tuple[Structure, Axes]:
    """The structure of a network of 3 features, and of each parameter what lies along each of its dimensions."""
    layout = ParameterLayout.of(module)
    structure = trace(module, layout, Nodes(3), run)
    plain = [[[(s.group, s.channels, s.block) for s in axis] for axis in axes] for axes in structure.axes]
    return structure, {entry.name: axes for entry, axes in zip(layout.entries, plain, strict=True)}


def all_exits(module: nn.Module, graph: Graph) -> list[Tensor]:
    assert isinstance(module, MultiExit)
    return module.exit_logits(graph)


FEATURES, CLASSES = [(None, 3, 1)], [(None, 5, 1)]


def test_each_hidden_layer_is_a_group_of_its_own() -> None:
    structure, axes = axes_of(GCN(3, 5, layers=4, hidden=8))
    assert structure.widths == (8, 8, 8)
    first, second, third = [(0, 8, 1)], [(1, 8, 1)], [(2, 8, 1)]
    assert axes == {
        "layers.0.linear.weight": [first, FEATURES],
        "layers.0.linear.bias": [first],
        "layers.1.linear.weight": [second, first],
        "layers.1.linear.bias": [second],
        "layers.2.linear.weight": [third, second],
        "layers.2.linear.bias": [third],
        "classifier.weight": [CLASSES, third],
        "classifier.bias": [CLASSES],
    }
    assert structure.classes == (None,) * 6 + (0, 0)
    assert all(structure.used)


def test_dropout_changes_nothing() -> None:
    assert axes_of(GCN(3, 5, 3, 8, dropout=0.5)) == axes_of(GCN(3, 5, 3, 8))


def test_an_exit_after_each_hidden_layer_has_the_classes() -> None:
    structure, axes = axes_of(MultiExit(GCN(3, 5, layers=4, hidden=8)), all_exits)
    assert structure.widths == (8, 8, 8)
    groups = [axes[f"network.layers.{number}.linear.bias"][0] for number in range(3)]
    assert sorted(group for axis in groups for group, _, _ in axis) == [0, 1, 2]
    assert axes["exits.0.weight"] == [CLASSES, groups[0]]
    assert axes["exits.1.weight"] == [CLASSES, groups[1]]
    assert axes["network.classifier.weight"] == [CLASSES, groups[2]]
    of_classes = dict(zip(axes, structure.classes, strict=True))
    heads = ("exits.0", "exits.1", "network.classifier")
    assert {name for name, dimension in of_classes.items() if dimension is not None} == {
        f"{head}.{kind}" for head in heads for kind in ("weight", "bias")
    }
    assert all(structure.used)


def test_a_shallower_network_does_not_use_what_lies_behind_its_exit() -> None:
    def second_exit(module: nn.Module, graph: Graph) -> list[Tensor]:
        assert isinstance(module, MultiExit)
        module.active = (2,)
        return [module(graph)]

    structure, axes = axes_of(MultiExit(GCN(3, 5, layers=4, hidden=8)), second_exit)
    assert {name for name, used in zip(axes, structure.used, strict=True) if used} == {
        f"{part}.{kind}"
        for part in ("network.layers.0.linear", "network.layers.1.linear", "exits.1")
        for kind in ("weight", "bias")
    }


class Own(nn.Module):
    """Two of PyTorch Geometric's layers under a linear one."""

    def __init__(self, convolution: Any, **settings: Any) -> None:
        super().__init__()
        self.first, self.second = convolution(3, 4, **settings), convolution(4, 6, **settings)
        self.out = nn.Linear(6, 5)

    def features(self, graph: Graph) -> Tensor:
        edges = graph.edge_index
        values: Tensor = self.second(self.first(graph.x, edges).relu(), edges).relu()
        return graph.asked(values)

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.out(features)
        return logits


def test_pytorch_geometrics_convolutions() -> None:
    structure, axes = axes_of(Own(GCNConv))
    assert structure.widths == (4, 6)
    first, second = [(0, 4, 1)], [(1, 6, 1)]
    assert axes == {
        "first.lin.weight": [first, FEATURES],
        "first.bias": [first],
        "second.lin.weight": [second, first],
        "second.bias": [second],
        "out.weight": [CLASSES, second],
        "out.bias": [CLASSES],
    }
    assert all(structure.used)


@pytest.mark.parametrize("aggregation", ["mean", "sum"])
def test_pytorch_geometrics_neighbour_aggregations(aggregation: str) -> None:
    """What comes from the neighbours is added to what comes from the node itself: one group."""
    structure, axes = axes_of(Own(SAGEConv, aggr=aggregation))
    assert structure.widths == (4, 6)
    first, second = [(0, 4, 1)], [(1, 6, 1)]
    assert axes == {
        "first.lin_l.weight": [first, FEATURES],
        "first.lin_l.bias": [first],
        "first.lin_r.weight": [first, FEATURES],
        "second.lin_l.weight": [second, first],
        "second.lin_l.bias": [second],
        "second.lin_r.weight": [second, first],
        "out.weight": [CLASSES, second],
        "out.bias": [CLASSES],
    }
    assert all(structure.used)


def test_tied_layers_are_one_group() -> None:
    class Tied(Own):
        def __init__(self) -> None:
            super().__init__(GCNConv)
            self.first, self.second, self.out = GCNConv(3, 6), GCNConv(6, 6), nn.Linear(6, 5)

        def features(self, graph: Graph) -> Tensor:
            once: Tensor = self.first(graph.x, graph.edge_index).relu()
            twice: Tensor = once + self.second(once, graph.edge_index)
            return graph.asked(twice)

    structure, axes = axes_of(Tied())
    assert structure.widths == (6,)
    assert axes["second.lin.weight"] == [[(0, 6, 1)], [(0, 6, 1)]]
    assert axes["first.bias"] == axes["second.bias"] == [[(0, 6, 1)]]


def test_rows_added_to_features_have_their_channels() -> None:
    class Added(Own):
        def __init__(self) -> None:
            super().__init__(GCNConv)
            self.first, self.second, self.out = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 5)

        def features(self, graph: Graph) -> Tensor:
            sources, targets = graph.edge_index
            once: Tensor = self.first(graph.x)
            return graph.asked(once.index_add(0, targets, self.second(once)[sources]))

    structure, axes = axes_of(Added())
    assert structure.widths == (6,)
    assert axes["second.weight"] == [[(0, 6, 1)], [(0, 6, 1)]]


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (Own(GATConv), "a view turns (3, 4) into (3, 1, 4)"),
        (Own(SAGEConv, aggr="max"), "operation 'scatter_reduce_' is not known"),
    ],
)
def test_what_cannot_be_traced_is_refused_with_the_reason(network: nn.Module, why: str) -> None:
    with pytest.raises(ModelError) as caught:
        axes_of(network)
    message = str(caught.value)
    assert message.startswith(f"the channels of Own cannot be traced: {why}; ")
    assert message.endswith("take a TopK method")


class Chosen(nn.Module):
    """A linear layer, of whose channels some are chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(3, 4), nn.Linear(2, 5)

    def features(self, graph: Graph) -> Tensor:
        features: Tensor = self.inner(graph.x).index_select(1, torch.tensor([0, 2]))
        return features

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.out(features)
        return logits


def test_rows_may_be_chosen_but_not_channels() -> None:
    with pytest.raises(ModelError, match="operation 'index_select' chooses among the channels"):
        axes_of(Chosen())
