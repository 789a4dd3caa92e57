"""A labelled graph, in memory or as memory-mapped files that processes share."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from framp.errors import DataError


@dataclass(frozen=True, eq=False)
class GraphSet:
    """One connected component: nodes with features float32 [nodes, F] and class numbers int64, and who neighbours whom.

    `neighbours[starts[i]:starts[i + 1]]` (int32, ascending) are those of node i. Each edge is there both ways, none
    leads from a node to itself.
    """

    name: str
    classes: int
    features: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    neighbours: np.ndarray
    sha256: str
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def edges(self) -> int:
        """The number of edges, each counted once."""
        return len(self.neighbours) // 2

    @property
    def adjacency(self) -> csr_array:
        """Ones where two nodes are neighbours."""
        ones = np.ones(len(self.neighbours), dtype=np.int8)
        return csr_array((ones, self.neighbours, self.starts), shape=(len(self), len(self)))

    @classmethod
    def from_edges(
        cls, name: str, features: np.ndarray, edges: np.ndarray, labels: np.ndarray, classes: int | None = None
    ) -> "GraphSet":
        """Build a graph from edges [2, E] of any direction; of several components the largest is kept.

        Without `classes` their number is the largest label plus one.
        """
        features, edges, labels = np.asarray(features), np.asarray(edges), np.asarray(labels)
        _check(name, features, edges, labels, classes)
        count = len(labels)
        ends = edges[:, edges[0] != edges[1]].astype(np.int64)
        one_way = coo_array((np.ones(ends.shape[1], dtype=np.bool_), (ends[0], ends[1])), shape=(count, count)).tocsr()
        both = (one_way + one_way.T).tocsr()
        _, component = connected_components(both, directed=False)
        kept = np.flatnonzero(component == np.bincount(component).argmax())
        if len(kept) < count:
            both = both[kept][:, kept]
        both.sort_indices()
        found = (
            np.ascontiguousarray(features[kept], dtype=np.float32),
            labels[kept].astype(np.int64),
            both.indptr.astype(np.int64),
            both.indices.astype(np.int32),
        )
        return cls(name, int(labels.max()) + 1 if classes is None else classes, *found, sha256=_content_hash(*found))


def _check(name: str, features: np.ndarray, edges: np.ndarray, labels: np.ndarray, classes: int | None) -> None:
    if features.ndim != 2 or features.dtype.kind not in "fiu" or not features.size:
        raise DataError(
            f"{name}: node features are {features.dtype} of shape {list(features.shape)}; give numbers as [nodes, F]"
        )
    nodes = len(features)
    if labels.shape != (nodes,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"{name}: labels are {labels.dtype} of shape {list(labels.shape)} for {nodes} nodes; "
            "give one class number to each node"
        )
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise DataError(
            f"{name}: edges are {edges.dtype} of shape {list(edges.shape)}; give pairs of node numbers as [2, edges]"
        )
    wrong = np.flatnonzero(((edges < 0) | (edges >= nodes)).any(axis=0))
    if len(wrong):
        raise DataError(
            f"{name}: edge {wrong[0]} joins nodes {edges[0, wrong[0]]} and {edges[1, wrong[0]]}, but the nodes are "
            f"numbered from 0 to {nodes - 1}; correct or remove it"
        )
    with np.errstate(over="ignore"):
        broken = np.flatnonzero(~np.isfinite(features.astype(np.float32)).all(axis=1))
    if len(broken):
        raise DataError(
            f"{name}: the features of {len(broken)} nodes are not finite, the first of them node {broken[0]}; "
            "replace NaN, infinity and what float32 cannot hold"
        )
    most = int(labels.max()) + 1 if classes is None else classes
    wrong = np.flatnonzero((labels < 0) | (labels >= most))
    if len(wrong):
        raise DataError(
            f"{name}: label out of range: {labels[wrong[0]]} at node {wrong[0]}, with {most} classes; "
            f"number the classes 0 to {most - 1}, and give every node one"
        )


def _content_hash(features: np.ndarray, labels: np.ndarray, starts: np.ndarray, neighbours: np.ndarray) -> str:
    digest = hashlib.sha256(f"{list(features.shape)}".encode())
    for array, kind in ((features, "<f4"), (labels, "<i8"), (starts, "<i8"), (neighbours, "<i4")):
        digest.update(np.ascontiguousarray(array, dtype=kind).data)
    return digest.hexdigest()
