import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from framp.config import Config
from framp.data import Dataset, Partition
from framp.data.clients import GraphClients, ImageClients, held
from framp.data.graph import Graph
from framp.data.graph_set import GraphSet
from framp.data.kinds import Images, Nodes
from framp.data.subgraph import Subgraph
from framp.errors import ConfigError

MakeClients = Callable[..., GraphClients]

TRAIN = (np.array([0, 5, 2, 9]), np.array([1, 3, 4, 6, 7, 8]))
TEST = (np.array([3, 1, 0]), np.array([2, 4]))


@pytest.fixture
def images(toy_dataset: Dataset) -> ImageClients:
    return ImageClients(toy_dataset, Partition(TRAIN, TEST, ""))


def test_clients_find_their_own_images(images: ImageClients, toy_dataset: Dataset) -> None:
    assert images.training(0).labels.tolist() == toy_dataset.train.labels[TRAIN[0]].tolist()
    assert torch.equal(images.training(1).images, torch.from_numpy(toy_dataset.train.images[TRAIN[1]]))
    assert torch.equal(images.testing(1).images, torch.from_numpy(toy_dataset.test.images[TEST[1]]))
    everybody = images.testing(None)
    assert torch.equal(everybody.images, torch.from_numpy(toy_dataset.test.images[[3, 1, 0, 2, 4]]))
    assert everybody.labels.tolist() == toy_dataset.test.labels[[3, 1, 0, 2, 4]].tolist()


def test_what_the_images_partition_points_into(images: ImageClients, toy_dataset: Dataset) -> None:
    assert images.kind == Images(1, 8, 8)
    for found, split in zip(images.labels, (toy_dataset.train, toy_dataset.test), strict=True):
        assert found is split.labels


def test_images_are_written_to_disk_once(images: ImageClients, toy_dataset: Dataset, tmp_path: Path) -> None:
    mapped = images.on_disk(tmp_path / "set")
    assert mapped.dataset.folder == tmp_path / "set"
    assert isinstance(mapped.dataset.train.images, np.memmap)
    assert mapped.partition is images.partition
    assert torch.equal(mapped.training(1).images, images.training(1).images)
    assert mapped.on_disk(tmp_path / "another") is mapped
    assert not (tmp_path / "another").exists()


def path_of_six() -> GraphSet:
    """0 - 1 - 2 - 3 - 4 - 5, with the node's number and its square as features."""
    numbers = np.arange(6)
    features = np.stack([numbers, numbers**2], axis=1).astype(np.float32)
    return GraphSet.from_edges("path", features, np.stack([numbers[:-1], numbers[1:]]), np.array([0, 1, 2, 0, 1, 2]))


@pytest.fixture
def path(graph_clients: MakeClients) -> GraphClients:
    """The first client holds 0, 1, 3 and 5 (edge 0 - 1 alone is inside), the second 2 and 4 (none is)."""
    return graph_clients(path_of_six(), [[5, 1], [4]], [[3], [2]], [[0], []])


def test_a_subgraph_by_hand(path: GraphClients) -> None:
    assert path.kind == Nodes(2)
    assert [labels.tolist() for labels in path.labels] == [[0, 1, 2, 0, 1, 2]] * 2
    training = path.training(0)
    (graph,) = training.graphs
    assert graph.x.tolist() == [[0, 0], [1, 1], [3, 9], [5, 25]]
    assert graph.x.dtype == torch.float32
    assert graph.edge_index.tolist() == [[0, 1], [1, 0]]
    assert graph.propagated[2:].tolist() == [[3, 9], [5, 25]]
    assert graph.propagated[:2].tolist() == pytest.approx(np.array([[0.5, 0.5], [0.5, 0.5]]))
    assert graph.asked(graph.x).tolist() == [[5, 25], [1, 1]]
    assert training.labels.tolist() == [2, 1]
    testing = path.testing(0)
    assert testing.graphs[0].asked(graph.x).tolist() == [[3, 9]]
    assert testing.labels.tolist() == [0]
    other = path.testing(1)
    assert other.graphs[0].x.tolist() == [[2, 4], [4, 16]]
    assert other.graphs[0].edge_index.shape == (2, 0)
    assert (other.labels.tolist(), len(other)) == ([2], 1)


def test_everybodys_nodes_are_each_inside_its_own_subgraph(path: GraphClients) -> None:
    for found, each in (
        (path.training(None), [path.training(0), path.training(1)]),
        (path.testing(None), [path.testing(0), path.testing(1)]),
    ):
        assert found.labels.tolist() == [label for samples in each for label in samples.labels.tolist()]
        for graph, samples in zip(found.graphs, each, strict=True):
            assert graph.x is samples.graphs[0].x
            assert graph.adjacency is samples.graphs[0].adjacency
            assert torch.equal(graph.asked(graph.x), samples.graphs[0].asked(graph.x))
    assert path.training(None).labels.tolist() == [2, 1, 1]
    assert path.testing(None).labels.tolist() == [0, 2]


def test_a_subgraph_is_cut_out_once_and_kept(path: GraphClients) -> None:
    first = path.training(0).graphs[0]
    for again in (path.training(0), path.testing(0), path.training(None)):
        assert again.graphs[0].adjacency is first.adjacency
        assert again.graphs[0].propagated is first.propagated


def test_what_was_cut_out_does_not_travel(path: GraphClients) -> None:
    fresh = len(pickle.dumps(path))
    expected = path.training(None)
    assert len(pickle.dumps(path)) == fresh
    copy = pickle.loads(pickle.dumps(path))
    assert copy.training(None).labels.tolist() == expected.labels.tolist()
    for found, own in zip(copy.training(None).graphs, expected.graphs, strict=True):
        assert found is not own
        assert torch.equal(found.propagated, own.propagated)
        assert torch.equal(found.asked(found.x), own.asked(own.x))
    assert path.training(0).graphs[0].adjacency is expected.graphs[0].adjacency  # and the original keeps its own


def test_mapped_arrays_are_as_good(path: GraphClients, tmp_path: Path) -> None:
    whole, arrays = path.dataset, {}
    for name in ("features", "labels", "starts", "neighbours"):
        np.save(tmp_path / f"{name}.npy", getattr(whole, name))
        arrays[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    mapped = GraphClients(replace(whole, **arrays), path.partition)
    for found, own in zip(mapped.training(None).graphs, path.training(None).graphs, strict=True):
        assert torch.equal(found.x, own.x)
        assert torch.equal(found.adjacency.to_dense(), own.adjacency.to_dense())
    labels = mapped.testing(None).labels
    assert labels.tolist() == path.testing(None).labels.tolist()
    labels.fill_(0)  # what clients get is theirs: the files are not written to
    assert mapped.testing(None).labels.tolist() == [0, 2]


def random_graph(nodes: int, seed: int) -> GraphSet:
    """A tree with some more edges."""
    generator = np.random.default_rng(seed)
    tree = [[generator.integers(node), node] for node in range(1, nodes)]
    edges = np.concatenate([np.array(tree), generator.integers(nodes, size=(nodes, 2))]).T
    features = generator.standard_normal((nodes, 3)).astype(np.float32)
    return GraphSet.from_edges("random", features, edges, generator.integers(4, size=nodes), 4)


def assert_induced(found: Subgraph, graph: GraphSet, nodes: list[int], asked: list[int]) -> None:
    """Compare a subgraph with a matrix filled entry by entry."""
    own: Graph = found.graphs[0]
    joined = np.eye(len(nodes))
    for row, node in enumerate(nodes):
        around = graph.neighbours[graph.starts[node] : graph.starts[node + 1]].tolist()
        for column, other in enumerate(nodes):
            joined[row, column] += other in around
    degrees = joined.sum(axis=1)
    normalised = [
        [joined[a, b] / math.sqrt(degrees[a] * degrees[b]) for b in range(len(nodes))] for a in range(len(nodes))
    ]
    np.testing.assert_array_equal(own.x.numpy(), [graph.features[node] for node in nodes])
    np.testing.assert_allclose(own.adjacency.to_dense().numpy(), normalised, atol=1e-6)
    assert own.rows is not None
    assert own.rows.tolist() == [nodes.index(node) for node in asked]
    assert found.labels.tolist() == [graph.labels[node] for node in asked]
    assert found.labels.dtype == torch.int64


@settings(max_examples=40)
@given(st.integers(6, 30), st.integers(1, 4), st.integers(0, 10**6))
def test_subgraphs_are_induced_by_their_nodes(graph_clients: MakeClients, nodes: int, clients: int, seed: int) -> None:
    """Nodes are dealt at random: a client's are not contiguous, and in no order."""
    graph, generator = random_graph(nodes, seed), np.random.default_rng(seed + 1)
    parts: list[list[list[int]]] = [[[] for _ in range(clients)] for _ in range(3)]
    for place, node in enumerate(generator.permutation(nodes).tolist()):
        parts[generator.integers(3)][place % clients].append(node)
    held = graph_clients(graph, *parts)
    for client in range(clients):
        own = sorted(parts[0][client] + parts[1][client] + parts[2][client])
        assert_induced(held.training(client), graph, own, parts[0][client])
        assert_induced(held.testing(client), graph, own, parts[1][client])


def test_graphs_are_not_cropped_and_flipped() -> None:
    with pytest.raises(ConfigError) as caught:
        held(path_of_six(), Config().with_values({"data.augment": True}))
    assert str(caught.value) == "data.augment crops and flips images, and the data are a graph; set it to false"
