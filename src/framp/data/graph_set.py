"""A labelled graph, in memory or as memory-mapped files that processes share."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framp.data.arrays import damaged, open_folder, save_folder, write_folder
from framp.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

KIND = "graph"
SCHEMA = 1


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
    def adjacency(self) -> "csr_array":
        """Ones where two nodes are neighbours."""
        from scipy.sparse import csr_array

        ones = np.ones(len(self.neighbours), dtype=np.int8)
        return csr_array((ones, self.neighbours, self.starts), shape=(len(self), len(self)))

    @classmethod
    def from_edges(
        cls, name: str, features: np.ndarray, edges: np.ndarray, labels: np.ndarray, classes: int | None = None
    ) -> "GraphSet":
        """Build a graph from edges [2, E] of any direction; of several components the largest is kept.

        Without `classes` their number is the largest label plus one, unless most of the numbers below it are missing.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

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

    @classmethod
    def from_pyg(cls, name: str, data: Any, classes: int | None = None) -> "GraphSet":
        """Build a graph from a torch_geometric `Data`: x, dense or sparse, edge_index, and y as [nodes] or [nodes, 1].

        Edges count in both directions; edge weights and masks are not read.
        """
        features, edges, labels = (
            _array(name, data, key, what)
            for key, what in (
                ("x", "the features, numbers [nodes, features]"),
                ("edge_index", "the edges, pairs of node numbers as [2, edges]"),
                ("y", "the labels, one class number to each node"),
            )
        )
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        return cls.from_edges(name, features, edges, labels, classes)

    @classmethod
    def open(cls, folder: Path) -> "GraphSet":
        """Map a folder that `save` wrote into memory; features and neighbours are not read until they are used."""
        folder = Path(folder).absolute()

        def build(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> "GraphSet":
            _check_files(arrays, int(meta["classes"]))
            return cls(str(meta["name"]), int(meta["classes"]), **arrays, sha256=str(meta["sha256"]), folder=folder)

        return open_folder(folder, KIND, SCHEMA, tuple(_FILES), build)

    def verify(self) -> "GraphSet":
        """Raise if the graph is not the one that was hashed."""
        if _content_hash(**self._arrays()) != self.sha256:
            raise damaged(self.folder, KIND, "wrong checksum")
        return self

    def save(self, folder: Path, elsewhere: str = "FRAMP_CACHE") -> "GraphSet":
        """Write the graph as files, all or nothing, and return it memory-mapped.

        If another process wrote the same graph meanwhile, its files are used. `elsewhere` is the environment
        variable that leads to another disk, for the message if this one refuses.
        """
        return save_folder(folder, KIND, self, self._write, GraphSet.open, elsewhere)

    def _write(self, folder: Path) -> None:
        meta = {"name": self.name, "classes": self.classes, "sha256": self.sha256}
        write_folder(folder, SCHEMA, meta, self._arrays())

    def _arrays(self) -> dict[str, np.ndarray]:
        return {key: getattr(self, key) for key in _FILES}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a graph with files as its path alone, so that worker processes share the pages."""
        if self.folder is not None:
            return GraphSet.open, (self.folder,)
        return GraphSet, (self.name, self.classes, *self._arrays().values(), self.sha256, None)


#: The arrays of a graph, each with its type and its number of axes.
_FILES = {"features": ("float32", 2), "labels": ("int64", 1), "starts": ("int64", 1), "neighbours": ("int32", 1)}


def _array(name: str, data: Any, key: str, what: str) -> np.ndarray:
    value = getattr(data, key, None)
    if value is None:
        raise DataError(f"{name}: the Data has no {key}; set data.{key} to {what}")
    if key == "x" and hasattr(value, "to_dense"):  # of an edge index it would be the adjacency matrix
        value = value.to_dense()
    value = torch.as_tensor(value).detach().cpu()
    if value.dtype in (torch.bool, torch.bfloat16):  # which numpy does not have, or not as a number
        value = value.float()
    array: np.ndarray = value.numpy()
    return array


def _check_files(arrays: dict[str, np.ndarray], classes: int) -> None:
    """Refuse arrays that do not belong together, by their ends and the labels alone."""
    for key, (kind, axes) in _FILES.items():
        if arrays[key].dtype != kind or arrays[key].ndim != axes:
            raise ValueError(f"{key}.npy is {arrays[key].dtype} with {arrays[key].ndim} axes, expected {kind}, {axes}")
    labels, starts = arrays["labels"], arrays["starts"]
    if not len(arrays["features"]) == len(labels) == len(starts) - 1 or len(labels) == 0:
        raise ValueError("features, labels and starts differ in length")
    if starts[0] != 0 or starts[-1] != len(arrays["neighbours"]):
        raise ValueError("starts do not span the neighbours")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"a label is not one of {classes} classes")


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
    most = _classes(name, labels) if classes is None else classes
    wrong = np.flatnonzero((labels < 0) | (labels >= most))
    if len(wrong):
        raise DataError(
            f"{name}: label out of range: {labels[wrong[0]]} at node {wrong[0]}, with {most} classes; "
            f"number the classes 0 to {most - 1}, and give every node one"
        )


def _classes(name: str, labels: np.ndarray) -> int:
    largest, found = int(labels.max()), len(np.unique(labels))
    if largest + 1 > 2 * found:  # a wrong label would make a network with an output for every number below it
        raise DataError(
            f"{name}: label {largest} at node {labels.argmax()}, but there are only {found} different labels; "
            f"correct it, number the classes 0 to {found - 1}, or say how many there are (`classes` in Python)"
        )
    return largest + 1


def _content_hash(features: np.ndarray, labels: np.ndarray, starts: np.ndarray, neighbours: np.ndarray) -> str:
    digest = hashlib.sha256(f"{list(features.shape)}".encode())
    for array, kind in ((features, "<f4"), (labels, "<i8"), (starts, "<i8"), (neighbours, "<i4")):
        digest.update(np.ascontiguousarray(array, dtype=kind).data)
    return digest.hexdigest()
