"""Who holds which part of a graph: a pure function of the graph and the partition's settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from framp.data import dealing
from framp.data.cuts import KINDS
from framp.data.graph_set import GraphSet
from framp.data.partition import Partition, hash_of_all
from framp.errors import ConfigError, DataError, listed, unknown
from framp.rng import NOBODY, stream
from framp.settings import PartitionConfig


@dataclass(frozen=True, eq=False)
class GraphPartition(Partition):
    """For each client, the ascending numbers int64 of the nodes that it trains on, tests on, and has besides.

    A client sees the edges between two nodes of its own, `kept_edges`; those to other clients' nodes, `cut_edges`,
    are lost. Both count int64 [clients].
    """

    rest: tuple[np.ndarray, ...]
    kind: str
    kept_edges: np.ndarray
    cut_edges: np.ndarray

    @property
    def total_cut(self) -> int:
        """The number of edges between clients, each counted once."""
        return int(self.cut_edges.sum()) // 2

    @property
    def total_edges(self) -> int:
        """The number of edges of the graph, kept or cut, each counted once."""
        return int(self.kept_edges.sum()) + self.total_cut

    def nodes(self, client: int) -> np.ndarray:
        """Return the nodes of a client's subgraph, ascending."""
        return np.sort(np.concatenate([self.train[client], self.test[client], self.rest[client]]))

    def edges(self) -> dict[str, int]:
        """Return the number of edges and of those between clients, each counted once."""
        return {"edges": self.total_edges, "cut_edges": self.total_cut}

    def to_dict(self) -> dict[str, Any]:
        """Return sizes, edges and hashes as plain values, for `partition.json`."""
        record = super().to_dict()
        clients = record.pop("clients")
        for client, rest, kept, cut in zip(clients, self.rest, self.kept_edges, self.cut_edges, strict=True):
            client |= {"rest": len(rest), "edges": int(kept), "cut_edges": int(cut)}
        return record | {"kind": self.kind, **self.edges(), "clients": clients}

    def _held(self) -> Iterator[tuple[np.ndarray, ...]]:
        return zip(self.train, self.test, self.rest, strict=True)


def cut(graph: GraphSet, config: PartitionConfig) -> GraphPartition:
    """Cut the graph into one subgraph for each client.

    Which nodes are trained on and which are tested is drawn before, of the whole graph, whatever the kind of the cut.
    Which client gets which part is drawn too, for budgets go by the clients' numbers.
    """
    if config.kind in dealing.KINDS:
        raise ConfigError(f"partition.kind '{config.kind}' deals out images; a graph is cut by {listed(KINDS, 'or')}")
    if config.kind not in KINDS:
        raise ConfigError(unknown("value for partition.kind", config.kind, KINDS))
    if len(graph) < config.clients:
        raise DataError(
            f"the graph has {len(graph)} nodes for {config.clients} clients; "
            f"lower partition.clients to at most {len(graph)} or use a larger graph"
        )
    splits = _split(len(graph), config)
    owner = stream(config.seed, NOBODY, NOBODY, "partition/owners").permutation(config.clients)
    parts = owner[KINDS[config.kind](graph, config)]  # neighbouring parts may have neighbouring numbers, as METIS' have
    train, test, rest = (_by_client(nodes, parts, config.clients) for nodes in splits)
    _refuse_poor(train, test, np.bincount(parts, minlength=config.clients), config)
    owners = np.repeat(parts, np.diff(graph.starts))
    inside = owners == parts[graph.neighbours]
    return GraphPartition(
        train,
        test,
        hash_of_all(zip(train, test, rest, strict=True)),
        rest,
        config.kind,
        kept_edges=np.bincount(owners[inside], minlength=config.clients) // 2,
        cut_edges=np.bincount(owners[~inside], minlength=config.clients),
    )


def _split(nodes: int, config: PartitionConfig) -> list[np.ndarray]:
    """Return the nodes to train on, to test on, and the rest."""
    order = stream(config.seed, NOBODY, NOBODY, "partition/nodes").permutation(nodes)
    train, test = round(nodes * config.train_share), round(nodes * (1 - config.train_share) / 2)
    for part, size, remedy in (("train", train, "raise"), ("test", test, "lower")):
        if not size:
            raise DataError(
                f"partition.train_share {config.train_share:g} leaves none of the graph's {nodes} nodes to {part} on; "
                f"{remedy} it or use a larger graph"
            )
    return np.split(order, [train, train + test])


def _by_client(nodes: np.ndarray, parts: np.ndarray, clients: int) -> tuple[np.ndarray, ...]:
    """Sort nodes into their clients' parts, each ascending."""
    nodes = np.sort(nodes).astype(np.int64)
    owners = parts[nodes]
    ends = np.cumsum(np.bincount(owners, minlength=clients))[:-1]
    return tuple(np.split(nodes[np.argsort(owners, kind="stable")], ends))


def _refuse_poor(
    train: tuple[np.ndarray, ...], test: tuple[np.ndarray, ...], sizes: np.ndarray, config: PartitionConfig
) -> None:
    """Raise if a client has nothing to train on or nothing to be tested on."""
    if not sizes.all():
        raise DataError(
            f"client {sizes.argmin()} is left without any node by partition.kind '{config.kind}'; "
            "lower partition.clients or choose another partition.kind"
        )
    for part, shards, remedy in (("training", train, "raise"), ("test", test, "lower")):
        for client, shard in enumerate(shards):
            if not len(shard):
                raise DataError(
                    f"client {client} is left without {part} nodes by partition.kind '{config.kind}': "
                    f"it has {sizes[client]} nodes in all; lower partition.clients, {remedy} partition.train_share "
                    "or try another partition.seed"
                )
