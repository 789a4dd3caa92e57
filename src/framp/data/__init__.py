"""Images or a graph, the classes that they belong to, and which client holds which of them."""

from framp.data.dataset import Dataset, Split
from framp.data.graph import Graph
from framp.data.graph_set import GraphSet
from framp.data.graph_sources import GRAPH_SOURCES, load_graph
from framp.data.partition import Partition, label_counts, partition, prior_overlap
from framp.data.shard import Shard, augment
from framp.data.sources import load, located

__all__ = [
    "GRAPH_SOURCES",
    "Dataset",
    "Graph",
    "GraphSet",
    "Partition",
    "Shard",
    "Split",
    "augment",
    "label_counts",
    "load",
    "load_graph",
    "located",
    "partition",
    "prior_overlap",
]
