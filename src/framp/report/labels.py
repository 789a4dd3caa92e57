"""A partition as its reader sees it: labels of each client, sizes, and how alike its two parts are."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framp.config import Config
from framp.data import Dataset, Partition, label_counts, prior_overlap
from framp.errors import RunFolderError
from framp.report.tables import Cell, Column, Table


@dataclass(frozen=True, eq=False)
class Labels:
    """Counts [clients, classes] of the training and of the test samples."""

    name: str
    kind: str
    train: np.ndarray
    test: np.ndarray
    sha256: str

    @classmethod
    def of(cls, config: Config, data: Dataset, shards: Partition) -> "Labels":
        """Count the labels of each client."""
        settings = config.partition
        strength = f", α = {settings.alpha:g}" if settings.kind.startswith("dirichlet") else ""
        train = label_counts(data.train.labels, shards.train, data.classes)
        test = label_counts(data.test.labels, shards.test, data.classes)
        return cls(config.name, f"{settings.kind}{strength}, {settings.test} test", train, test, shards.sha256)

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
        """Return sizes, number of classes held, overlap and hash as plain values."""
        return {
            "sha256": self.sha256,
            "clients": len(self.train),
            "classes": self.train.shape[1],
            "train": _spread(self.train.sum(axis=1)) | {"total": int(self.train.sum())},
            "test": _spread(self.test.sum(axis=1)) | {"total": int(self.test.sum())},
            "classes_held": _spread((self.train > 0).sum(axis=1)),
            "overlap": _spread(self.overlap),
        }


def _spread(values: np.ndarray) -> dict[str, float]:
    return {"mean": float(values.mean()), "min": values.min().item(), "max": values.max().item()}


def label_table(labels: Labels) -> Table:
    """Return the summary of a partition."""
    summary = labels.summary()
    titles = {
        "train": "training samples a client",
        "test": "test samples a client",
        "classes_held": "classes in a client's training samples",
        "overlap": "overlap of train and test priors",
    }
    columns = [Column("", ("what",), left=True), *(Column(name, (name,)) for name in ("mean", "min", "max"))]
    rows = []
    for key, title in titles.items():
        values = [summary[key][name] for name in ("mean", "min", "max")]
        texts = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in values]
        rows.append([Cell(title, (title,)), *(Cell(text, (value,)) for text, value in zip(texts, values, strict=True))])
    notes = (
        "Overlap: Σ min(train share, test share) over the classes; 1: the same labels in both parts, 0: disjoint.",
        f"Hash: {labels.sha256}",
    )
    return Table(f"{labels.name}: {labels.kind}, {len(labels.train)} clients", columns, rows, notes)


def labels_csv(labels: Labels) -> str:
    """Return two lines for each client: its labels, its size, its overlap."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    classes = [f"class_{number}" for number in range(labels.train.shape[1])]
    writer.writerow(["client", "part", "samples", "overlap", *classes])
    for client, overlap in enumerate(labels.overlap):
        for part, counts in (("train", labels.train[client]), ("test", labels.test[client])):
            writer.writerow([client, part, counts.sum(), f"{overlap:.6f}", *counts])
    return text.getvalue()
