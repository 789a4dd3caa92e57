"""Images, the classes they belong to, and which client holds which of them."""

from framp.data.dataset import Dataset, Split
from framp.data.partition import Partition, label_counts, partition, prior_overlap
from framp.data.shard import Shard, augment
from framp.data.sources import load, located

__all__ = [
    "Dataset",
    "Partition",
    "Shard",
    "Split",
    "augment",
    "label_counts",
    "load",
    "located",
    "partition",
    "prior_overlap",
]
