"""The figures of one run: accuracy over rounds, and every client's accuracy by its budget."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from framp.report.record import Record
from framp.report.style import LOCAL, UNION, budget_colours, canvas, mark_every, marker, percent_axis, round_axis


def run_figures(record: Record, folder: Path) -> list[Path]:
    """Draw both figures of a run and return the files."""
    written: list[Path] = []
    title = f"{record.recipe}, seed {record.seed}"
    with canvas(folder, "accuracy", 9, 3.8, written) as figure:
        figure.suptitle(f"Accuracy over rounds: {title}")
        left, right = figure.subplots(1, 2, sharey=True)
        _local_and_union(left, record)
        _by_budget(right, record)
        percent_axis(left)
    with canvas(folder, "clients", 6, 4, written) as figure:
        axes = figure.subplots()
        axes.set_title(f"Accuracy of each client's own model: {title}")
        _clients(axes, record)
    return written


def _local_and_union(axes: Axes, record: Record) -> None:
    rounds = [event["round"] for event in record.evaluations]
    every = mark_every(len(rounds))
    for key, label, colour, sign in (("local", "Local", LOCAL, "o"), ("union", "Union", UNION, "s")):
        values = [100 * event[key] for event in record.evaluations]
        axes.plot(rounds, values, label=label, color=colour, marker=sign, markevery=every)
    axes.set_title("All clients")
    round_axis(axes)
    axes.legend()


def _by_budget(axes: Axes, record: Record) -> None:
    rounds = [event["round"] for event in record.evaluations]
    every = mark_every(len(rounds))
    colours = budget_colours(len(record.budgets))
    for place, (budget, colour) in enumerate(zip(record.budgets, colours, strict=True)):
        values = [100 * event["groups"][budget] for event in record.evaluations]
        axes.plot(rounds, values, label=budget, color=colour, marker=marker(place), markevery=every)
    axes.set_title("Local, by budget")
    round_axis(axes)
    axes.legend(title="budget (fraction of model)", ncols=2)


def _clients(axes: Axes, record: Record) -> None:
    """Draw one dot a client, spread sideways so that equal accuracies stay countable, and a line for the mean."""
    generator = np.random.default_rng(0)
    colours = budget_colours(len(record.budgets))
    for place, (budget, colour) in enumerate(zip(record.budgets, colours, strict=True)):
        clients = record.results["final"]["clients"]
        values = np.array([100 * client["accuracy"] for client in clients if client["budget"] == budget])
        sideways = place + generator.uniform(-0.22, 0.22, size=len(values))
        axes.scatter(sideways, values, s=26, color=colour, edgecolor="black", linewidth=0.4, alpha=0.85)
        if len(values):
            axes.hlines(values.mean(), place - 0.32, place + 0.32, color="black", linewidth=2)
            mean = f"{values.mean():.1f}"
            axes.annotate(mean, (place + 0.34, values.mean()), va="center", ha="left", fontsize=9)
    axes.set_xticks(range(len(record.budgets)), record.budgets)
    axes.set_xlim(-0.6, len(record.budgets) - 0.3)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("budget (fraction of the full model); line: mean")
    percent_axis(axes)
    axes.set_ylim(-2, 103)
