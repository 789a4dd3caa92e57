"""What several tests share: a separable toy problem, its configuration, and federations over it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from framp.config import Config
from framp.data import Dataset
from framp.data.clients import GraphClients
from framp.data.cutting import GraphPartition
from framp.data.graph import Graph
from framp.data.graph_set import GraphSet
from framp.federation import Federation, parts_over
from framp.models import Architecture

settings.register_profile("framp", deadline=None)  # the machine may be busy with other things
settings.load_profile("framp")

MakeConfig = Callable[[dict[str, Any]], Config]
MakeFederation = Callable[..., Federation]
MakeGraph = Callable[..., Graph]
MakeClients = Callable[..., GraphClients]
NodeParts = Sequence[Sequence[int]]

TOY: dict[str, Any] = {
    "name": "toy",
    "rounds": 3,
    "partition.clients": 6,
    "partition.alpha": 0.7,
    "model.width": 4,
    "federation.budgets": ["1/8", "1/2", "1"],
    "federation.shares": [1 / 3, 1 / 3, 1 / 3],
    "federation.participants": 4,
    "training.steps": 2,
    "training.batch": 8,
    "generation.hidden": 8,
    "evaluation.batch": 64,
}


GRAPH: dict[str, Any] = {
    **TOY,
    "name": "toy-graph",
    "partition.kind": "metis",
    "model.name": "gcn",
    "model.layers": 3,
    "model.hidden": 24,
    "training.rate": 0.3,
}


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Work on one thread, as a federation does: the number of threads would show in the last bits."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def toy_dataset() -> Dataset:
    """Grey 8x8 images of 4 classes, each a bright quadrant in noise: 120 to train on and 60 to test on."""
    generator = np.random.default_rng(0)
    parts = []
    for count in (120, 60):
        labels = np.arange(count) % 4
        images = generator.integers(0, 120, size=(count, 1, 8, 8))
        for image, label in zip(images, labels, strict=True):
            row, column = 4 * (label // 2), 4 * (label % 2)
            image[0, row : row + 4, column : column + 4] += 130
        parts.append((images.astype(np.uint8), labels))
    return Dataset.from_arrays("toy", *parts[0], *parts[1], classes=4)


@pytest.fixture(scope="session")
def toy_config() -> MakeConfig:
    """Return the maker of configurations: the toy problem's, with some keys set otherwise."""
    return lambda values: Config().with_values(TOY | values)


@pytest.fixture(scope="session")
def toy_graph() -> GraphSet:
    """240 nodes of 4 classes on a ring of 12 communities, each of one class; a feature tells it, in noise."""
    generator = np.random.default_rng(0)
    nodes = np.arange(240)
    labels = nodes // 20 % 4
    features = generator.normal(0, 0.5, size=(240, 6))
    features[nodes, labels] += 1
    near = np.stack([nodes.repeat(3), (nodes.repeat(3) // 20 * 20 + generator.integers(0, 20, size=720))])
    ring = np.stack([nodes, (nodes + 1) % 240])
    return GraphSet.from_edges("toy", features, np.concatenate([near, ring], axis=1), labels, 4)


@pytest.fixture
def toy_federation(toy_dataset: Dataset) -> Iterator[MakeFederation]:
    """Return the maker of federations over the toy problem; they are closed when the test is over."""
    yield from _maker(toy_dataset, TOY)


@pytest.fixture
def toy_graph_federation(toy_graph: GraphSet) -> Iterator[MakeFederation]:
    """Return the maker of federations over the toy graph; they are closed when the test is over."""
    yield from _maker(toy_graph, GRAPH)


def _maker(dataset: Dataset | GraphSet, defaults: dict[str, Any]) -> Iterator[MakeFederation]:
    made: list[Federation] = []

    def make(values: dict[str, Any] | None = None, architecture: Architecture | None = None) -> Federation:
        config = Config().with_values(defaults | (values or {}))
        made.append(Federation(parts_over(dataset, config, architecture)))
        return made[-1]

    yield make
    for federation in made:
        federation.close()


@pytest.fixture(scope="session")
def random_graph() -> MakeGraph:
    """Return the maker of random graphs; the last node is alone."""

    def make(nodes: int = 12, features: int = 5, dtype: torch.dtype = torch.float64) -> Graph:
        generator = torch.Generator().manual_seed(0)
        joined = (torch.rand(nodes, nodes, generator=generator) < 0.3).triu(1)
        joined[:, -1] = False
        joined = joined | joined.T
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), joined.sum(dim=1).cumsum(0)])
        x = torch.randn(nodes, features, generator=generator, dtype=torch.float64)
        return Graph.of(x.to(dtype), starts, joined.nonzero()[:, 1])

    return make


@pytest.fixture(scope="session")
def graph_clients() -> MakeClients:
    """Return the maker of clients that hold these training, test and remaining nodes of a graph."""

    def make(graph: GraphSet, train: NodeParts, test: NodeParts, rest: NodeParts) -> GraphClients:
        nobody = np.zeros(len(train), dtype=np.int64)
        own, other, idle = (tuple(np.array(nodes, dtype=np.int64) for nodes in part) for part in (train, test, rest))
        return GraphClients(graph, GraphPartition(own, other, "", idle, "metis", nobody, nobody))

    return make
