"""The rules by which a graph is cut into subgraphs, one for each client; `cutting` chooses one by name."""

from collections.abc import Callable

import numpy as np

from framp.data.graph_set import GraphSet
from framp.extras import needed
from framp.rng import NOBODY, number, stream
from framp.settings import PartitionConfig


def metis(graph: GraphSet, config: PartitionConfig) -> np.ndarray:
    """Cut few edges into parts of about the same size: METIS' k-way partitioning with its default options."""
    pymetis = needed("pymetis", "graph")
    neighbours = pymetis.CSRAdjacency(graph.starts, graph.neighbours)
    _, parts = pymetis.part_graph(config.clients, neighbours, recursive=False)
    return np.array(parts, dtype=np.int64)


def louvain(graph: GraphSet, config: PartitionConfig) -> np.ndarray:
    """Deal Louvain's communities out, the largest first, each to the client with the fewest nodes so far.

    Communities of more than ⌈nodes/clients⌉ nodes are split at random into pieces of at most that size.
    """
    networkx = needed("networkx", "graph")
    network = networkx.Graph()
    network.add_nodes_from(range(len(graph)))
    ends = np.repeat(np.arange(len(graph)), np.diff(graph.starts))
    once = ends < graph.neighbours
    network.add_edges_from(zip(ends[once].tolist(), graph.neighbours[once].tolist(), strict=True))
    seed = number(config.seed, NOBODY, NOBODY, "partition/louvain")
    found = networkx.community.louvain_communities(network, seed=seed)
    return _dealt([np.array(sorted(nodes), dtype=np.int64) for nodes in found], len(graph), config)


def _dealt(communities: list[np.ndarray], nodes: int, config: PartitionConfig) -> np.ndarray:
    most = -(-nodes // config.clients)
    generator = stream(config.seed, NOBODY, NOBODY, "partition/pieces")
    pieces: list[np.ndarray] = []
    for community in communities:
        if len(community) <= most:
            pieces.append(community)
        else:
            pieces += np.split(generator.permutation(community), range(most, len(community), most))
    parts = np.empty(nodes, dtype=np.int64)
    sizes = np.zeros(config.clients, dtype=np.int64)
    for piece in sorted(pieces, key=len, reverse=True):
        client = sizes.argmin()
        parts[piece] = client
        sizes[client] += len(piece)
    return parts


def random(graph: GraphSet, config: PartitionConfig) -> np.ndarray:
    """Give each client nodes drawn at random; numbers of nodes differ by at most one."""
    generator = stream(config.seed, NOBODY, NOBODY, "partition/random")
    return generator.permutation(np.arange(len(graph), dtype=np.int64) % config.clients)


KINDS: dict[str, Callable[[GraphSet, PartitionConfig], np.ndarray]] = {
    "metis": metis,
    "louvain": louvain,
    "random": random,
}
