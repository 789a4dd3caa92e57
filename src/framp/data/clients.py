"""What clients hold: the set, by memory map, and who holds which part of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import torch

from framp.config import Config
from framp.data.cutting import GraphPartition, cut
from framp.data.dataset import Dataset
from framp.data.graph import Graph
from framp.data.graph_set import GraphSet
from framp.data.graph_sources import GRAPH_SOURCES, load_graph
from framp.data.kinds import Images, Kind, Nodes
from framp.data.partition import Partition, partition
from framp.data.samples import Samples
from framp.data.shard import Shard
from framp.data.sources import load
from framp.data.subgraph import Subgraph
from framp.errors import ConfigError


class ClientData(Protocol):
    """Where clients find their samples."""

    @property
    def dataset(self) -> Dataset | GraphSet:
        """The whole set."""

    @property
    def partition(self) -> Partition:
        """Who holds what."""

    @property
    def kind(self) -> Kind:
        """What the samples are."""

    @property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The class numbers that the partition's training and test parts point into."""

    def training(self, client: int | None) -> Samples:
        """Return a client's training samples; those of all clients, in their order, for None."""

    def testing(self, client: int | None) -> Samples:
        """Return a client's test samples; those of all clients, in their order, for None."""

    def on_disk(self, folder: Path) -> Self:
        """Return the same with files, whose pages all processes share; they are made in a folder if need be."""


@dataclass(frozen=True)
class ImageClients:
    """Clients that hold images."""

    dataset: Dataset
    partition: Partition

    @property
    def kind(self) -> Images:
        """Images of the set's shape."""
        return Images(*self.dataset.train.images.shape[1:])

    @property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The labels of the two splits."""
        return self.dataset.train.labels, self.dataset.test.labels

    def training(self, client: int | None) -> Shard:
        """Return a client's training samples; those of all clients, in their order, for None."""
        return Shard.of(self.dataset, "train", _of(self.partition.train, client))

    def testing(self, client: int | None) -> Shard:
        """Return a client's test samples; those of all clients, in their order, for None."""
        return Shard.of(self.dataset, "test", _of(self.partition.test, client))

    def on_disk(self, folder: Path) -> "ImageClients":
        """Return the same with files."""
        return self if self.dataset.folder else replace(self, dataset=self.dataset.save(folder, elsewhere="TMPDIR"))


@dataclass(frozen=True)
class GraphClients:
    """Clients that hold subgraphs, which are cut out and normalised when they are first asked for, and kept."""

    dataset: GraphSet
    partition: GraphPartition
    _graphs: dict[int, Graph] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def kind(self) -> Nodes:
        """Nodes with the set's features."""
        return Nodes(self.dataset.features.shape[1])

    @property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The labels of the nodes, for both parts."""
        return self.dataset.labels, self.dataset.labels

    def training(self, client: int | None) -> Subgraph:
        """Return a client's training nodes; those of all clients, in their order, for None."""
        return self._asked(self.partition.train, client)

    def testing(self, client: int | None) -> Subgraph:
        """Return a client's test nodes; those of all clients, in their order, for None."""
        return self._asked(self.partition.test, client)

    def on_disk(self, folder: Path) -> "GraphClients":
        """Return the same with files."""
        return self if self.dataset.folder else replace(self, dataset=self.dataset.save(folder, elsewhere="TMPDIR"))

    def _asked(self, parts: Sequence[np.ndarray], client: int | None) -> Subgraph:
        clients = range(len(parts)) if client is None else (client,)
        graphs = [
            self._graph(number).asking(torch.from_numpy(np.searchsorted(self.partition.nodes(number), parts[number])))
            for number in clients
        ]
        return Subgraph(
            graphs, [torch.from_numpy(np.asarray(self.dataset.labels[parts[number]])) for number in clients]
        )

    def _graph(self, client: int) -> Graph:
        """Return the subgraph that a client's nodes induce."""
        if client not in self._graphs:
            nodes = self.partition.nodes(client)
            own = self.dataset.adjacency[nodes][:, nodes]
            self._graphs[client] = Graph.of(
                torch.from_numpy(np.asarray(self.dataset.features[nodes])),
                torch.from_numpy(own.indptr.astype(np.int64)),
                torch.from_numpy(own.indices.astype(np.int64)),
            )
        return self._graphs[client]

    def __getstate__(self) -> dict[str, object]:
        return {"dataset": self.dataset, "partition": self.partition, "_graphs": {}}


def dealt(config: Config) -> ClientData:
    """Load the data that a configuration names, and deal them out."""
    if config.data.source in GRAPH_SOURCES:
        return held(load_graph(config.data, config.sbm), config)
    return held(load(config.data), config)


def held(dataset: Dataset | GraphSet, config: Config) -> ClientData:
    """Deal a set out."""
    if isinstance(dataset, GraphSet):
        if config.data.augment:
            raise ConfigError("data.augment crops and flips images, and the data are a graph; set it to false")
        return GraphClients(dataset, cut(dataset, config.partition))
    shards = partition(dataset.train.labels, dataset.test.labels, dataset.classes, config.partition)
    return ImageClients(dataset, shards)


def _of(parts: Sequence[np.ndarray], client: int | None) -> np.ndarray:
    return np.concatenate(list(parts)) if client is None else parts[client]
