"""The figure of a partition."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.ticker import EngFormatter, MaxNLocator

from framp.report.labels import Labels
from framp.report.style import COLOURS, LOCAL, UNION, canvas

VALIDATION, KEPT, CUT = "#BBBBBB", COLOURS[2], COLOURS[3]


def label_figure(labels: Labels, folder: Path) -> list[Path]:
    """Draw a row for each client: its labels in both parts, its sizes, its overlap; of a graph, its edges too."""
    written: list[Path] = []
    clients, graph, samples = len(labels.train), labels.graph, labels.samples
    height = min(14.0, max(4.0, 1.6 + 0.09 * clients))
    ratios = [3, 3, 1.3, 1.3, 1.3] if graph else [3, 3, 1.3, 1.3]
    with canvas(folder, "labels", 13 if graph else 11, height, written) as figure:
        figure.suptitle(f"Who holds which labels: {labels.name} ({labels.kind})")
        train, test, sizes, *edges, overlap = figure.subplots(1, len(ratios), sharey=True, width_ratios=ratios)
        _heat_map(train, labels.train, f"Training {samples}")
        image = _heat_map(test, labels.test, f"Test {samples}")
        figure.colorbar(image, ax=test, label=f"share of the client's {samples} (%)", pad=0.02, fraction=0.05)
        train.set_ylabel("client")
        stacked = {
            f"training {samples}": (labels.train.sum(axis=1), LOCAL),
            f"test {samples}": (labels.test.sum(axis=1), UNION),
        }
        if graph:
            stacked["validation nodes"] = (np.array([len(nodes) for nodes in graph.rest]), VALIDATION)
            _bars(edges[0], {"edges kept": (graph.kept_edges, KEPT), "edges cut": (graph.cut_edges, CUT)})
            _label(edges[0], "Edges", "edges")
        _bars(sizes, stacked)
        _label(sizes, "Sizes", samples)
        figure.legend(loc="outside lower right", ncols=5)
        overlap.barh(np.arange(clients), labels.overlap, color="#555555", height=0.85)
        overlap.set_xlim(0, 1)
        _label(overlap, "Overlap", "Σ min(train, test)")
        for axes in (train, test, sizes, *edges, overlap):
            axes.grid(axis="y", visible=False)
        train.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        train.set_ylim(clients - 0.5, -0.5)
    return written


def _bars(axes: Axes, stacked: dict[str, tuple[np.ndarray, str]]) -> None:
    """Draw what each client has as one bar of several colours."""
    left = np.zeros(len(next(iter(stacked.values()))[0]))
    for name, (lengths, colour) in stacked.items():
        axes.barh(np.arange(len(left)), lengths, color=colour, height=0.85, label=name, left=left)
        left = left + lengths
    axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _label(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(unit)


def _heat_map(axes: Axes, counts: np.ndarray, title: str) -> AxesImage:
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
    _label(axes, title, "class")
    if counts.shape[1] <= 20:
        axes.set_xticks(range(counts.shape[1]))
    axes.grid(visible=False)
    return image
