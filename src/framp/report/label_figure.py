"""The figure of a partition."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from framp.report.labels import Labels
from framp.report.style import LOCAL, UNION, canvas


def label_figure(labels: Labels, folder: Path) -> list[Path]:
    """Draw a row for each client: its labels in both parts, its sizes, its overlap."""
    written: list[Path] = []
    clients = len(labels.train)
    height = min(14.0, max(4.0, 1.6 + 0.09 * clients))
    with canvas(folder, "labels", 11, height, written) as figure:
        figure.suptitle(f"Who holds which labels: {labels.name} ({labels.kind})")
        train, test, sizes, overlap = figure.subplots(1, 4, sharey=True, width_ratios=[3, 3, 1.3, 1.3])
        _heat_map(train, labels.train, "Training samples")
        image = _heat_map(test, labels.test, "Test samples")
        figure.colorbar(image, ax=test, label="share of the client's samples (%)", pad=0.02, fraction=0.05)
        train.set_ylabel("client")
        rows = np.arange(clients)
        sizes.barh(rows, labels.train.sum(axis=1), color=LOCAL, height=0.85, label="training samples")
        sizes.barh(
            rows, labels.test.sum(axis=1), color=UNION, height=0.85, label="test samples", left=labels.train.sum(axis=1)
        )
        sizes.set_title("Sizes")
        sizes.set_xlabel("samples")
        figure.legend(loc="outside lower right", ncols=2)
        overlap.barh(rows, labels.overlap, color="#555555", height=0.85)
        overlap.set_xlim(0, 1)
        overlap.set_title("Overlap")
        overlap.set_xlabel("Σ min(train, test)")
        for axes in (train, test, sizes, overlap):
            axes.grid(axis="y", visible=False)
        train.yaxis.set_major_locator(MaxNLocator(integer=True))
        train.set_ylim(clients - 0.5, -0.5)
    return written


def _heat_map(axes: Axes, counts: np.ndarray, title: str) -> AxesImage:
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
    axes.set_title(title)
    axes.set_xlabel("class")
    if counts.shape[1] <= 20:
        axes.set_xticks(range(counts.shape[1]))
    axes.grid(visible=False)
    return image
