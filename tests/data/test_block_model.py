from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from framp.data import GraphSet
from framp.data.block_model import generate
from framp.errors import ConfigError
from framp.settings import SbmConfig

MIDDLE = SbmConfig(nodes=3000, edges=15000, features=32, classes=6, blocks=6)


def ends(graph: GraphSet) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.repeat(np.arange(len(graph)), np.diff(graph.starts)), graph.neighbours
    return one[one < other], other[one < other]


@pytest.mark.parametrize(
    "config",
    [
        SbmConfig(),
        MIDDLE,
        replace(MIDDLE, within=0.0),
        replace(MIDDLE, within=1.0),
        SbmConfig(nodes=500, edges=499, features=1, within=0.0),
        SbmConfig(nodes=500, edges=500 * 499 // 4, features=1),
        SbmConfig(nodes=60, edges=60 * 59 // 4, features=1, blocks=60),
        SbmConfig(nodes=60, edges=60 * 59 // 4, features=1, blocks=1, classes=1, within=0.1),
        SbmConfig(nodes=3, edges=2, features=1, blocks=3, classes=3),
        SbmConfig(nodes=2, edges=1, features=1, blocks=1, classes=1),
    ],
    ids=["default", "middle", "across", "inside", "tree", "dense", "tiny blocks", "one block", "three", "pair"],
)
def test_the_graph_has_exactly_the_size_asked_for_and_is_connected(config: SbmConfig) -> None:
    graph = generate(config)
    one, other = ends(graph)
    assert (len(graph), graph.edges, graph.classes) == (config.nodes, config.edges, config.classes)
    assert len(one) == config.edges == len(set(zip(one.tolist(), other.tolist(), strict=True)))
    assert connected_components(graph.adjacency, directed=False)[0] == 1
    assert graph.features.shape == (config.nodes, config.features)
    assert np.unique(graph.labels).tolist() == list(range(config.classes))


def test_the_settings_decide_everything_and_each_of_them_something() -> None:
    config = SbmConfig(nodes=300, edges=900, features=4, classes=3, blocks=6)
    again = generate(config)
    assert generate(config).sha256 == again.sha256 == generate(replace(config)).sha256
    changes = ("seed", 1), ("within", 0.4), ("signal", 1.0), ("edges", 901), ("blocks", 9), ("classes", 2)
    others = {generate(replace(config, **{key: value})).sha256 for key, value in changes}  # type: ignore[arg-type]
    assert len(others | {again.sha256}) == 7


@pytest.mark.parametrize("within", [0.0, 0.3, 0.7, 0.95])
def test_the_share_within_a_block_is_the_one_asked_for(within: float) -> None:
    graph = generate(replace(MIDDLE, within=within))  # as many blocks as classes: a block's nodes are a class's
    one, other = ends(graph)
    share = np.mean(graph.labels[one] == graph.labels[other])
    assert abs(share - within) < 0.045  # a tree that joins other blocks happens to stay within one now and then


def test_blocks_are_of_equal_size_and_share_classes_in_turn() -> None:
    labels = generate(SbmConfig(nodes=100, edges=300, classes=3, blocks=10)).labels
    assert np.bincount(labels).tolist() == [40, 30, 30]


def test_degrees_have_a_heavy_tail() -> None:
    degrees = np.diff(generate(MIDDLE).starts)
    assert np.median(degrees) < degrees.mean() == 10
    assert degrees.max() > 8 * degrees.mean()


def test_the_order_of_nodes_tells_neither_class_nor_degree() -> None:
    graph = generate(MIDDLE)
    place = np.arange(len(graph))
    for value in (graph.labels, np.diff(graph.starts)):
        assert abs(np.corrcoef(place, value)[0, 1]) < 0.05
    assert abs(np.mean(graph.labels[1:] == graph.labels[:-1]) - 1 / 6) < 0.03


def test_features_are_a_centre_and_noise() -> None:
    graph = generate(replace(MIDDLE, nodes=6000, features=200, signal=2.0))
    means = np.stack([graph.features[graph.labels == label].mean(axis=0) for label in range(6)])
    noise = graph.features - means[graph.labels]
    assert graph.features.dtype == np.float32
    assert abs(means.std() - 2) < 0.15
    assert abs(noise.std() - 1) < 0.01
    assert np.abs(np.corrcoef(noise[:, :20], rowvar=False) - np.eye(20)).max() < 0.06


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": 98}, "sbm.edges is 98, too few to connect 100 nodes; raise it to at least 99 or lower sbm.nodes"),
        ({"edges": 2476}, "sbm.edges is 2476, more than half of the pairs of 100 nodes; lower it to at most 2475 or"),
        ({"blocks": 4}, "sbm.blocks is 4, fewer than the 5 classes; raise it or lower sbm.classes"),
        ({"blocks": 101}, "sbm.blocks is 101, more than the 100 nodes; lower it or raise sbm.nodes"),
        ({"nodes": 1, "edges": 1, "blocks": 1, "classes": 1}, "sbm.edges is 1, more than half of the pairs of 1 nodes"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(change: dict[str, int], message: str) -> None:
    config = SbmConfig(nodes=100, edges=300, features=2, classes=5, blocks=10)
    with pytest.raises(ConfigError, match=message) as caught:
        generate(replace(config, **change))
    assert "\n" not in str(caught.value)
