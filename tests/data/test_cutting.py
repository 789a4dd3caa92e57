import dataclasses
import json
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framp.data import cuts, partition
from framp.data.cutting import GraphPartition, cut
from framp.data.graph_set import GraphSet
from framp.errors import ConfigError, DataError, FrampError
from framp.settings import PartitionConfig


def graph_of(edges: list[tuple[int, int]]) -> GraphSet:
    pairs = np.array(edges).T
    nodes = int(pairs.max()) + 1
    return GraphSet.from_edges("toy", np.ones((nodes, 1)), pairs, np.arange(nodes) % 2, 2)


def cliques(sizes: list[int]) -> GraphSet:
    """Cliques in a row, the last node of each joined to the first one of the next."""
    edges, first = [], 0
    for size in sizes:
        edges += [(first - 1, first)] if first else []
        edges += list(combinations(range(first, first + size), 2))
        first += size
    return graph_of(edges)


def blocks(nodes: int = 300, edges: int = 1200, count: int = 6, seed: int = 0) -> GraphSet:
    """Random edges, four of five within a block, and a ring that keeps all nodes connected."""
    generator = np.random.default_rng(seed)
    ends = generator.integers(0, nodes, size=(2, edges))
    within = generator.random(edges) < 0.8
    ends[1, within] = (ends[1] // count * count + ends[0] % count)[within] % nodes
    ring = np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])
    labels = np.arange(nodes) % count
    return GraphSet.from_edges("blocks", np.ones((nodes, 1)), np.concatenate([ends, ring], axis=1), labels, count)


def owners(shards: GraphPartition, nodes: int) -> np.ndarray:
    parts = np.full(nodes, -1)
    for client in range(len(shards.train)):
        parts[shards.nodes(client)] = client
    return parts


def check_counts(graph: GraphSet, shards: GraphPartition) -> None:
    """Count edge by edge."""
    parts = owners(shards, len(graph))
    kept, cut_off, total_cut = [0] * len(shards.train), [0] * len(shards.train), 0
    for one in range(len(graph)):
        for other in graph.neighbours[graph.starts[one] : graph.starts[one + 1]].tolist():
            if one > other:
                continue
            if parts[one] == parts[other]:
                kept[parts[one]] += 1
                continue
            total_cut += 1
            cut_off[parts[one]] += 1
            cut_off[parts[other]] += 1
    assert shards.kept_edges.tolist() == kept
    assert shards.cut_edges.tolist() == cut_off
    assert (shards.total_cut, shards.total_edges) == (total_cut, graph.edges)


@pytest.mark.parametrize("kind", ["metis", "louvain"])
def test_two_cliques_are_cut_at_the_edge_between_them(kind: str) -> None:
    shards = cut(cliques([8, 8]), PartitionConfig(clients=2, kind=kind, train_share=0.5, seed=1))
    assert (shards.total_cut, shards.total_edges) == (1, 57)
    assert shards.cut_edges.tolist() == [1, 1]
    assert shards.kept_edges.tolist() == [28, 28]
    assert {tuple(shards.nodes(client)) for client in (0, 1)} == {tuple(range(8)), tuple(range(8, 16))}


def test_the_split_has_exactly_the_sizes_asked_for() -> None:
    for nodes, share, sizes in ((300, 0.4, [120, 90, 90]), (301, 0.4, [120, 90, 91]), (300, 0.8, [240, 30, 30])):
        shards = cut(blocks(nodes), PartitionConfig(clients=3, kind="metis", train_share=share))
        assert [sum(map(len, part)) for part in (shards.train, shards.test, shards.rest)] == sizes


def test_the_split_is_drawn_before_the_cut_and_is_the_same_for_every_kind() -> None:
    graph = blocks()
    found = [
        [sorted(np.concatenate(part)) for part in (shards.train, shards.test, shards.rest)]
        for shards in (
            cut(graph, PartitionConfig(clients=clients, kind=kind))
            for kind, clients in (("metis", 3), ("louvain", 5), ("random", 1))
        )
    ]
    assert found[0] == found[1] == found[2]


def test_random_parts_differ_in_size_by_at_most_one() -> None:
    shards = cut(blocks(), PartitionConfig(clients=7, kind="random"))
    assert sorted(len(shards.nodes(client)) for client in range(7)) == [42, 43, 43, 43, 43, 43, 43]
    assert shards.total_cut > 0.8 * shards.total_edges


def test_communities_are_dealt_from_the_largest_to_whoever_has_least() -> None:
    """Of 20 nodes for 4 clients none may get more than 5 at a time: 9 is cut to 5 and 4, the rest is dealt whole."""
    communities = np.split(np.arange(20), [3, 12, 17])
    parts = cuts._dealt(communities, 20, PartitionConfig(clients=4, kind="louvain"))
    pieces = [np.bincount(parts[community], minlength=4).tolist() for community in communities]
    # 5 of the nine to client 0, the five to 1, 4 of the nine to 2, the first three to 3, the last three to 3
    assert pieces == [[0, 0, 0, 3], [5, 0, 4, 0], [0, 5, 0, 0], [0, 0, 0, 3]]


def test_louvain_finds_the_communities_that_there_are() -> None:
    shards = cut(cliques([10] * 6), PartitionConfig(clients=6, kind="louvain"))
    assert shards.total_cut == 5
    assert {tuple(shards.nodes(client)) for client in range(6)} == {
        tuple(range(first, first + 10)) for first in range(0, 60, 10)
    }


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_node_is_held_once_and_every_edge_is_kept_or_cut(data: st.DataObject) -> None:
    graph = blocks(data.draw(st.integers(280, 320), "nodes"), 1000, seed=data.draw(st.integers(0, 99), "graph"))
    kind = data.draw(st.sampled_from(sorted(cuts.KINDS)), "kind")
    clients, seed = data.draw(st.integers(1, 4), "clients"), data.draw(st.integers(0, 3), "seed")
    config = PartitionConfig(clients=clients, kind=kind, seed=seed)
    shards = cut(graph, config)
    held = [nodes for part in (shards.train, shards.test, shards.rest) for nodes in part]
    assert sorted(np.concatenate(held)) == list(range(len(graph)))
    assert all(nodes.dtype == np.int64 and (np.diff(nodes) > 0).all() for nodes in held)
    assert min(map(len, (*shards.train, *shards.test))) >= 1
    assert shards.kind == kind
    check_counts(graph, shards)
    assert cut(graph, config).to_dict() == shards.to_dict()


@pytest.mark.parametrize("kind", sorted(cuts.KINDS))
def test_another_seed_is_another_split(kind: str) -> None:
    graph = blocks()
    config = PartitionConfig(clients=4, kind=kind)
    one, other = cut(graph, config), cut(graph, dataclasses.replace(config, seed=1))
    assert one.sha256 != other.sha256
    assert sorted(np.concatenate(one.train)) != sorted(np.concatenate(other.train))
    if kind == "metis":  # the same parts, dealt to other clients
        parts = [[part.nodes(client).tolist() for client in range(4)] for part in (one, other)]
        assert sorted(parts[0]) == sorted(parts[1])
        assert parts[0] != parts[1]


@pytest.mark.parametrize("kind", sorted(cuts.KINDS))
def test_one_client_holds_everything(kind: str) -> None:
    graph = blocks()
    shards = cut(graph, PartitionConfig(clients=1, kind=kind))
    assert shards.nodes(0).tolist() == list(range(300))
    assert (shards.kept_edges.tolist(), shards.cut_edges.tolist()) == ([graph.edges], [0])


def test_the_record_names_sizes_edges_and_hashes() -> None:
    shards = cut(cliques([10, 10]), PartitionConfig(clients=2, kind="metis"))
    record = json.loads(json.dumps(shards.to_dict()))
    assert list(record) == ["schema", "sha256", "kind", "edges", "cut_edges", "clients"]
    assert [record[key] for key in ("schema", "sha256", "kind", "edges", "cut_edges")] == [
        1,
        shards.sha256,
        "metis",
        91,
        1,
    ]
    for client, entry in enumerate(record["clients"]):
        assert list(entry) == ["id", "train", "test", "sha256", "rest", "edges", "cut_edges"]
        assert entry["train"] + entry["test"] + entry["rest"] == 10
        assert (entry["id"], entry["edges"], entry["cut_edges"]) == (client, 45, 1)


def test_the_hash_covers_the_nodes_that_are_only_there() -> None:
    shards = cut(cliques([10, 10]), PartitionConfig(clients=2, kind="metis"))
    without = dataclasses.replace(shards, rest=tuple(nodes[1:] for nodes in shards.rest))
    hashes = [[client["sha256"] for client in part.to_dict()["clients"]] for part in (shards, without)]
    assert len({*hashes[0], *hashes[1]}) == 4


def test_a_partition_stays_what_it_was() -> None:
    """Pin the streams: a saved run must find its own partition again under a later version."""
    graph = cliques([8, 8, 8])
    assert cut(graph, PartitionConfig(clients=3, kind="random")).sha256[:12] == "3cc35913b395"


def sparse(nodes: int) -> GraphSet:
    return graph_of([(node, node + 1) for node in range(nodes - 1)])


@pytest.mark.parametrize(
    ("graph", "config", "error", "message"),
    [
        (
            sparse(5),
            PartitionConfig(clients=6, kind="random"),
            DataError,
            "the graph has 5 nodes for 6 clients; lower partition.clients to at most 5 or use a larger graph",
        ),
        (
            sparse(10),
            PartitionConfig(clients=1, kind="random", train_share=0.01),
            DataError,
            "partition.train_share 0.01 leaves none of the graph's 10 nodes to train on; raise it",
        ),
        (
            sparse(10),
            PartitionConfig(clients=1, kind="random", train_share=0.95),
            DataError,
            "partition.train_share 0.95 leaves none of the graph's 10 nodes to test on; lower it",
        ),
        (
            sparse(40),
            PartitionConfig(clients=10, kind="random", train_share=0.1),
            DataError,
            "client [0-9] is left without training nodes by partition.kind 'random': it has 4 nodes in all; "
            "lower partition.clients, raise partition.train_share or try another partition.seed",
        ),
        (
            sparse(40),
            PartitionConfig(clients=10, kind="random", train_share=0.8),
            DataError,
            "client [0-9] is left without test nodes by partition.kind 'random': it has 4 nodes in all; "
            "lower partition.clients, lower partition.train_share or try another partition.seed",
        ),
        (
            sparse(10),
            PartitionConfig(clients=2),
            ConfigError,
            "partition.kind 'dirichlet' deals out images; a graph is cut by metis, louvain or random",
        ),
        (sparse(10), PartitionConfig(clients=2, kind="mettis"), ConfigError, "unknown value .* did you mean 'metis'"),
    ],
)
def test_what_cannot_be_cut_is_refused(
    graph: GraphSet, config: PartitionConfig, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        cut(graph, config)
    assert "\n" not in str(caught.value)


def test_a_client_without_any_node_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cuts.KINDS, "metis", lambda graph, config: np.repeat([0, 2, 3], 10))
    message = "client 1 is left without any node by partition.kind 'metis'; lower partition.clients or choose another"
    with pytest.raises(DataError, match=message):
        cut(sparse(30), PartitionConfig(clients=4, kind="metis"))


@pytest.mark.parametrize(("kind", "package"), [("metis", "pymetis"), ("louvain", "networkx")])
def test_a_missing_package_is_named(kind: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(FrampError, match=rf'needs the package {package}.*pip install "framp\[graph\]"'):
        cut(sparse(30), PartitionConfig(clients=2, kind=kind))


@pytest.mark.parametrize("kind", sorted(cuts.KINDS))
def test_images_are_not_cut(kind: str) -> None:
    labels = np.arange(10) % 2
    message = (
        f"partition.kind '{kind}' cuts graphs; images are dealt out by "
        "dirichlet, dirichlet-unbalanced, iid or pathological"
    )
    with pytest.raises(ConfigError, match=message):
        partition(labels, labels, 2, PartitionConfig(clients=2, kind=kind))
