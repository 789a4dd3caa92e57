"""How all figures look: one style, colours that colour-blind readers tell apart, text kept as text in SVG."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from framp.runs.atomic import explained, temporary_name

REMEDY = "run the same command again"
#: Okabe and Ito, in the order in which methods take them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LOCAL, UNION = COLOURS[0], COLOURS[1]
#: Budgets from small to large, light to dark.
BUDGET_MAP = "viridis_r"

SETTINGS: Any = {  # matplotlib's type for the keys differs between its versions
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "framp",
}


@contextmanager
def canvas(folder: Path, stem: str, width: float, height: float, written: list[Path]) -> Iterator[Figure]:
    """Hand out an empty figure, then write it to `folder` as SVG and PNG and append both paths to `written`."""
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        with explained(folder, REMEDY):
            folder.mkdir(parents=True, exist_ok=True)
        for suffix, metadata in ((".svg", {"Date": None, "Creator": "framp"}), (".png", {"Software": "framp"})):
            path = folder / f"{stem}{suffix}"
            draft = temporary_name(path)
            try:
                with explained(path, REMEDY):
                    figure.savefig(draft, format=suffix[1:], metadata=metadata)
                    os.replace(draft, path)
            finally:
                draft.unlink(missing_ok=True)
            written.append(path)


def percent_axis(axes: Axes, label: str = "accuracy (%)") -> None:
    """Let the vertical axis run from 0, in percent."""
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)


def round_axis(axes: Axes) -> None:
    """Let the horizontal axis count rounds."""
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def colour(place: int) -> str:
    """Return the colour of the method at some place of a list."""
    return COLOURS[place % len(COLOURS)]


def marker(place: int) -> str:
    """Return the marker of the method at some place of a list."""
    return MARKERS[place % len(MARKERS)]


def dash(place: int) -> str:
    """Return the line style of the method at some place of a list; methods that share a colour differ in it."""
    return ("-", "--", ":")[place // len(COLOURS) % 3]


def hatch(place: int) -> str:
    """Return the pattern of the method's bars; methods that share a colour differ in it."""
    return ("", "////", "....")[place // len(COLOURS) % 3]


def mark_every(points: int) -> int:
    """Return how many points of a curve to pass over for each one that gets a marker."""
    return max(1, points // 10)


def budget_colours(count: int) -> list[Any]:
    """Return a colour for each budget, from light to dark."""
    shades = matplotlib.colormaps[BUDGET_MAP]
    return [shades(0.1 + 0.85 * place / max(count - 1, 1)) for place in range(count)]
