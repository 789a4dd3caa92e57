"""A partition as its reader sees it: labels of each client, sizes, how alike its two parts are, what a graph loses."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framp.config import Config
from framp.data import Partition, label_counts, prior_overlap
from framp.data.cutting import GraphPartition
from framp.errors import RunFolderError
from framp.report.tables import Cell, Column, Table, missing


@dataclass(frozen=True, eq=False)
class Labels:
    """Counts [clients, classes] of the training and of the test samples; of a graph, how it was cut too."""

    name: str
    kind: str
    train: np.ndarray
    test: np.ndarray
    sha256: str
    graph: GraphPartition | None = None

    @classmethod
    def of(
        cls, config: Config, train_labels: np.ndarray, test_labels: np.ndarray, classes: int, shards: Partition
    ) -> "Labels":
        """Count the labels of each client."""
        settings = config.partition
        counts = label_counts(train_labels, shards.train, classes), label_counts(test_labels, shards.test, classes)
        if isinstance(shards, GraphPartition):
            return cls(config.name, shards.kind, *counts, shards.sha256, shards)
        strength = f", α = {settings.alpha:g}" if settings.kind.startswith("dirichlet") else ""
        return cls(config.name, f"{settings.kind}{strength}, {settings.test} test", *counts, shards.sha256)

    @property
    def samples(self) -> str:
        """Say what is dealt out."""
        return "nodes" if self.graph else "samples"

    @property
    def overlap(self) -> np.ndarray:
        """Return Σ_c min(p_train, p_test) of each client."""
        return prior_overlap(self.train, self.test)

    def refuse_other(self, folder: Path) -> None:
        """Raise if a folder already holds another partition."""
        if folder.exists() and not folder.is_dir():
            raise RunFolderError(f"{folder} is a file; choose another --out")
        path = folder / "partition.json"
        if not path.exists():
            return
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["sha256"]
        except (ValueError, KeyError, TypeError):
            found = "unknown"
        if found != self.sha256:
            raise RunFolderError(
                f"{folder} holds another partition ({found[:12]}, not {self.sha256[:12]}); choose another --out"
            )

    def to_json(self, shards: Partition) -> str:
        """Return the record of the partition, the same as a run's."""
        return json.dumps(shards.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def summary(self) -> dict[str, Any]:
        """Return sizes, number of classes held, overlap, hash and, of a graph, its cut as plain values."""
        train, test = self.train.sum(axis=1), self.test.sum(axis=1)
        return {
            "sha256": self.sha256,
            "clients": len(self.train),
            "classes": self.train.shape[1],
            "train": _counted(train),
            "test": _counted(test),
            "classes_held": _spread((self.train > 0).sum(axis=1)),
            "overlap": _spread(self.overlap),
        } | (_cut_summary(self.graph, train + test) if self.graph else {})


def _cut_summary(graph: GraphPartition, evaluated: np.ndarray) -> dict[str, Any]:
    validation = np.array([len(nodes) for nodes in graph.rest])
    share = graph.cut_edges / np.maximum(graph.kept_edges + graph.cut_edges, 1)
    return {
        "nodes": _counted(evaluated + validation),
        "rest": _counted(validation),
        "edges": _counted(graph.kept_edges),
        "cut_edges": _spread(graph.cut_edges) | {"total": graph.total_cut},
        "cut_share": _spread(share) | {"total": graph.total_cut / max(graph.total_edges, 1)},
    }


def _counted(values: np.ndarray) -> dict[str, float]:
    return _spread(values) | {"total": int(values.sum())}


def _spread(values: np.ndarray) -> dict[str, float]:
    return {"mean": float(values.mean()), "min": values.min().item(), "max": values.max().item()}


def label_table(labels: Labels) -> Table:
    """Return the summary of a partition."""
    summary, samples = labels.summary(), labels.samples
    titles = {
        "nodes": "nodes a client",
        "train": f"training {samples} a client",
        "test": f"test {samples} a client",
        "edges": "edges a client keeps",
        "cut_share": "share of its edges cut off",
        "classes_held": f"classes in a client's training {samples}",
        "overlap": "overlap of train and test priors",
    }
    names = ("mean", "min", "max", "total") if labels.graph else ("mean", "min", "max")
    columns = [Column("", ("what",), left=True), *(Column(name, (name,)) for name in names)]
    rows = []
    for key, title in titles.items():
        if key in summary:
            cells = [_cell(summary[key], column) for column in columns[1:]]
            rows.append([Cell(title, (title,)), *cells])
    notes = ["Overlap: Σ min(train share, test share) over the classes; 1: the same labels in both parts, 0: disjoint."]
    if labels.graph:
        notes.append(
            f"Cut: {labels.graph.total_cut} of {labels.graph.total_edges} edges, those between two clients. "
            "The total counts each once; a client's share is of the edges that its nodes have."
        )
    return Table(
        f"{labels.name}: {labels.kind}, {len(labels.train)} clients", columns, rows, [*notes, f"Hash: {labels.sha256}"]
    )


def _cell(values: dict[str, float], column: Column) -> Cell:
    (name,) = column.keys
    if name not in values:
        return missing(column)
    value = values[name]
    return Cell(f"{value:.2f}" if isinstance(value, float) else str(value), (value,))


def labels_csv(labels: Labels) -> str:
    """Return two lines for each client: its labels, its size, its overlap; of a graph, its nodes and edges too."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    classes = [f"class_{number}" for number in range(labels.train.shape[1])]
    cut_names = ["nodes", "edges", "cut_edges"] if labels.graph else []
    writer.writerow(["client", "part", "samples", "overlap", *cut_names, *classes])
    for client, overlap in enumerate(labels.overlap):
        own = _own_cut(labels.graph, client) if labels.graph else []
        for part, counts in (("train", labels.train[client]), ("test", labels.test[client])):
            writer.writerow([client, part, counts.sum(), f"{overlap:.6f}", *own, *counts])
    return text.getvalue()


def _own_cut(graph: GraphPartition, client: int) -> list[int]:
    return [len(graph.nodes(client)), graph.kept_edges[client], graph.cut_edges[client]]
