"""The figures of a comparison: accuracy over rounds with confidence bands, and bars by budget."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from framp.report.comparison import Comparison
from framp.report.record import Record, heading
from framp.report.statistics import estimate
from framp.report.style import canvas, colour, dash, hatch, mark_every, marker, percent_axis, round_axis


def comparison_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Draw both figures of a comparison and return the files."""
    written: list[Path] = []
    spread = "mean and 95 % CI" if len(comparison.seeds) > 1 else "one seed"
    over = f"{spread} over {len(comparison.seeds)} seeds" if len(comparison.seeds) > 1 else spread
    with canvas(folder, "accuracy", 10.5, max(3.8, 0.28 * len(comparison.recipes) + 0.8), written) as figure:
        figure.suptitle(f"Accuracy over rounds: {comparison.name} ({over})")
        axes = figure.subplots(1, 2, sharey=True)
        for side, key in zip(axes, ("local", "union"), strict=True):
            _curves(side, comparison, key)
        percent_axis(axes[0])
        axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1), handlelength=3.5)  # long enough to show dashes
    width = max(1.3, 0.18 * len(comparison.recipes)) * len(comparison.measures) + 2
    with canvas(folder, "budgets", max(7, width), 4, written) as figure:
        side = figure.subplots()
        side.set_title(f"{comparison.metric_text}: {comparison.name} ({over})")
        _bars(side, comparison)
    return written


def _curves(axes: Axes, comparison: Comparison, key: str) -> None:
    band = 0.18 if len(comparison.recipes) <= 6 else 0.06  # many bands would hide the curves
    for place, recipe in enumerate(comparison.recipes):
        records = [comparison.records[recipe, seed] for seed in comparison.seeds]
        rounds = _common_rounds(records)
        estimates = [estimate([_value(record, round, key) for record in records]) for round in rounds]
        every = mark_every(len(rounds))
        means = np.array([one.mean for one in estimates])
        axes.plot(
            rounds,
            means,
            label=recipe,
            color=colour(place),
            linestyle=dash(place),
            marker=marker(place),
            markevery=every,
        )
        if len(comparison.seeds) > 1:
            widths = np.array([one.half_width or 0.0 for one in estimates])
            low, high = np.clip(means - widths, 0, 100), np.clip(means + widths, 0, 100)
            axes.fill_between(rounds, low, high, color=colour(place), alpha=band, linewidth=0)
    axes.set_title(heading(key))
    round_axis(axes)


def _common_rounds(records: list[Record]) -> list[int]:
    evaluated = [{event["round"] for event in record.evaluations} for record in records]
    return sorted(set.intersection(*evaluated))


def _value(record: Record, round: int, key: str) -> float:
    return next(100 * float(event[key]) for event in record.evaluations if event["round"] == round)


def _bars(axes: Axes, comparison: Comparison) -> None:
    width = 0.8 / len(comparison.recipes)
    for place, recipe in enumerate(comparison.recipes):
        estimates = [comparison.estimates[recipe][key] for key in comparison.measures]
        left = np.arange(len(estimates)) - 0.4 + (place + 0.5) * width
        errors = [100 * (one.half_width or 0.0) for one in estimates] if len(comparison.seeds) > 1 else None
        axes.bar(
            left,
            [100 * one.mean for one in estimates],
            0.92 * width,
            yerr=errors,
            capsize=2.5,
            error_kw={"linewidth": 1},
            label=recipe,
            color=colour(place),
            hatch=hatch(place),
            edgecolor="white",
            linewidth=0,
        )
    headings = [heading(key) for key in comparison.measures]
    axes.set_xticks(range(len(headings)), headings)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("Local: all clients, then the clients of each budget (fraction of the full model); Union")
    percent_axis(axes)
    axes.set_ylim(top=min(axes.get_ylim()[1], 105))  # two seeds that disagree have an interval beyond all accuracies
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
