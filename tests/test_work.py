"""Multiply-adds of networks, counted by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

from framp.data.graph import Graph
from framp.data.kinds import Images, Kind, Nodes
from framp.errors import ModelError
from framp.layout import ParameterLayout
from framp.models import GCN, MultiExit, ResNet18, SmallCNN
from framp.work import Work, work_of


def work(module: nn.Module, kind: Kind) -> Work:
    return work_of(module, ParameterLayout.of(module), kind)


def uses(found: Work) -> dict[str, int]:
    return {entry.name: uses for entry, uses in zip(found.entries, found.uses, strict=True)}


def test_resnet18_by_hand() -> None:
    """A stage of 64·2^s channels works on maps of 32/2^s pixels a side."""
    found = work(ResNet18(3, 10, 64), Images(3, 32, 32))
    expected, total, before = {"stem.0.weight": 32 * 32}, 64 * 3 * 9 * 32 * 32, 64
    for stage in range(4):
        positions, width = (32 // 2**stage) ** 2, 64 * 2**stage
        for block in (2 * stage, 2 * stage + 1):
            for convolution in ("conv1", "conv2"):
                expected[f"blocks.{block}.{convolution}.weight"] = positions
            total += positions * 9 * width * (before + width)
            if before != width:
                expected[f"blocks.{block}.shortcut.0.weight"] = positions
                total += positions * width * before
            before = width
    expected |= {"classifier.weight": 1, "classifier.bias": 0}
    assert uses(found) == expected
    assert found.total == total + 5120 == 555_422_720


def test_a_small_network_by_hand() -> None:
    """Poolings round up: maps of 9, 5 and 3 pixels a side."""
    found = work(SmallCNN(1, 4, 2), Images(1, 9, 9))
    assert list(uses(found).values()) == [81, 25, 9, 1, 0]
    assert found.total == 81 * 18 + 25 * 72 + 9 * 288 + 32


def test_a_node_of_a_graph_uses_each_weight_once() -> None:
    for network in (GCN(3, 5, 3, 4), GCN(3, 5, 3, 4, dropout=0.5)):
        found = work(network, Nodes(3))
        assert list(uses(found).values()) == [1, 0, 1, 0, 1, 0]
        assert found.total == 3 * 4 + 4 * 4 + 4 * 5


def test_all_exits_of_a_network_count() -> None:
    plain, exits = work(SmallCNN(1, 4, 2), Images(1, 8, 8)), work(MultiExit(SmallCNN(1, 4, 2)), Images(1, 8, 8))
    assert exits.total == plain.total + 2 * 4 + 4 * 4
    assert uses(exits)["exits.1.weight"] == 1


class Made(nn.Module):
    """A network of images that a test makes up."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.weights = [layer.weight for layer in layers.values() if isinstance(layer, nn.Conv2d)]
        self.classifier = nn.Linear(4, 3)

    def features(self, images: Tensor) -> Tensor:
        return self.run(self, images)

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


def pooled(maps: Tensor) -> Tensor:
    return maps.mean(dim=(2, 3))


def test_a_layer_used_twice_costs_twice_and_one_that_is_not_used_nothing() -> None:
    def run(network: Any, images: Tensor) -> Tensor:
        maps = network.first(images)
        return pooled(network.second(network.second(maps)))

    layers = {"first": nn.Conv2d(1, 4, 3, stride=2), "second": nn.Conv2d(4, 4, 1), "idle": nn.Conv2d(4, 4, 1)}
    found = uses(work(Made(run, **layers), Images(1, 9, 9)))
    assert found["first.weight"] == 16
    assert found["second.weight"] == 32
    assert found["idle.weight"] == found["second.bias"] == 0


def test_groups_and_transposed_convolutions() -> None:
    def run(network: Any, images: Tensor) -> Tensor:
        return pooled(network.apart(network.larger(images)))

    layers = {"larger": nn.ConvTranspose2d(1, 4, 2, stride=2), "apart": nn.Conv2d(4, 4, 3, groups=4, padding=1)}
    found = uses(work(Made(run, **layers), Images(1, 5, 5)))
    assert found["larger.weight"] == 25  # each place of the input meets each entry once
    assert found["apart.weight"] == 100


def test_attention_works_on_every_place() -> None:
    def run(network: Any, images: Tensor) -> Tensor:
        places = images.flatten(2).transpose(1, 2)
        mixed: Tensor = network.attention(places, places, places, need_weights=False)[0]
        return mixed.mean(dim=1)

    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    found = uses(work(Made(run, attention=attention), Images(4, 3, 3)))
    assert found["attention.in_proj_weight"] == found["attention.out_proj.weight"] == 9


def test_layers_of_pytorch_geometric() -> None:
    class Users(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.classifier = GCNConv(3, 4), nn.Linear(4, 2)

        def features(self, graph: Graph) -> Tensor:
            return graph.asked(self.first(graph.x, graph.edge_index).relu())

        def head(self, features: Tensor) -> Tensor:
            logits: Tensor = self.classifier(features)
            return logits

    assert work(Users(), Nodes(3)).total == 3 * 4 + 4 * 2


def test_what_cannot_be_counted_is_an_error() -> None:
    def standardised(network: Any, images: Tensor) -> Tensor:
        (weight,) = network.weights
        return pooled(functional.conv2d(images, weight - weight.mean()))

    def squared(network: Any, images: Tensor) -> Tensor:
        (weight,) = network.weights
        return pooled(functional.conv2d(images, weight + weight))

    for run, why in ((standardised, "operation 'mean' on a weight is not known"), (squared, "no parameter but comp")):
        with pytest.raises(ModelError, match=f"the work of Made cannot be counted: .*{why}.*take a method"):
            work(Made(run, first=nn.Conv2d(1, 4, 3)), Images(1, 9, 9))


def test_the_work_of_some_entries() -> None:
    found = work(SmallCNN(1, 4, 2), Images(1, 9, 9))  # tensors of 18, 72, 288, 32 and 4 entries
    assert found.of(None) == found.total
    assert found.of(torch.arange(414, dtype=torch.int32)) == found.total
    some = torch.tensor([0, 17, 18, 90, 377, 378, 410, 413], dtype=torch.int32)
    assert found.each(some.numpy()).tolist() == [81, 81, 25, 9, 9, 1, 0, 0]
    assert found.of(some) == 206
    assert found.share(some) == 206 / found.total
    assert found.of(torch.empty(0, dtype=torch.int32)) == 0
