"""The tables of one run and of a comparison."""

from collections import Counter
from fractions import Fraction
from statistics import fmean

from framp.report.comparison import Comparison
from framp.report.record import Record, heading
from framp.report.statistics import Difference, Estimate
from framp.report.tables import Cell, Column, Table, missing
from framp.report.units import bytes_text, percent, seconds_text

COSTS = (Column("down", ("bytes_down",)), Column("up", ("bytes_up",)), Column("time", ("seconds",)))


def run_table(record: Record, name: str) -> Table:
    """Return what one run has reached and cost; last, mean of the last ten and best are never mixed in a row."""
    measures = list(record.measures("final"))
    columns = [Column("", ("metric",), left=True), *(Column(heading(key), (key,)) for key in measures)]
    best = (record.results.get("best") or {}).get("round")
    last = min(10, len(record.evaluations))
    rows = []
    titles = {
        "final": f"round {record.results['rounds']}",
        "last10": f"mean of last {last}",
        "best": f"best, round {best}",
    }
    for metric, title in titles.items():
        values = record.measures(metric)
        if not values:
            continue
        row = [Cell(title, (metric,))]
        row += [
            Cell(percent(values[column.keys[0]]), (values[column.keys[0]],))
            if column.keys[0] in values
            else missing(column)
            for column in columns[1:]
        ]
        if metric == "final":
            row += _costs(record.bytes_down, record.bytes_up, record.seconds)
        else:
            row += [missing(column) for column in COSTS]
        rows.append(row)
    notes = [
        "Accuracy in %. Local: each client's own model, also by budget. Union: the average model, on all test data."
    ]
    if record.cut:
        notes.append(f"Subgraphs by {record.cut}.")
    if record.held:
        notes.append(f"Fraction of the full model that a client of each budget gets: {_shares(record.held)}.")
    if record.work:
        notes.append(f"Share of the full network's multiply-adds that it keeps: {_shares(record.work)}.")
    if record.rejected:
        reasons = ", ".join(f"{reason} {count}" for reason, count in record.rejected.items())
        notes.append(f"Rejected updates: {sum(record.rejected.values())} ({reasons}).")
    return Table(f"{name}: {record.recipe}, seed {record.seed}", [*columns, *COSTS], rows, notes)


def comparison_table(comparison: Comparison) -> Table:
    """Return what each recipe reaches, and what it costs."""
    columns = [Column("recipe", ("recipe",), left=True)]
    columns += [Column(heading(key), (f"{key}_mean", f"{key}_half_width")) for key in comparison.measures]
    rows = []
    for recipe, estimates in comparison.estimates.items():
        records = [comparison.records[recipe, seed] for seed in comparison.seeds]
        down, up = (fmean(record.bytes_down for record in records), fmean(record.bytes_up for record in records))
        seconds = fmean(record.seconds for record in records)
        rows.append(
            [
                Cell(recipe, (recipe,)),
                *(Cell(_estimate_text(one), (one.mean, one.half_width)) for one in estimates.values()),
                *_costs(down, up, seconds),
            ]
        )
    notes = [f"{comparison.metric_text} in %, {comparison.seeds_text}. Bytes and time: mean of a whole run."]
    cuts = dict.fromkeys(record.cut for record in comparison.records.values() if record.cut)
    notes += [f"Subgraphs by {cut}." for cut in cuts]
    for recipe in comparison.estimates:
        held = comparison.records[recipe, comparison.seeds[0]].held
        over = [f"{budget}: {share:.4f}" for budget, share in held.items() if share > Fraction(budget)]
        if over:
            notes.append(f"{recipe} takes more than the budget: {', '.join(over)}.")
    works = {recipe: comparison.records[recipe, comparison.seeds[0]].work for recipe in comparison.estimates}
    if any(works.values()):
        each = "; ".join(f"{recipe} {_shares(work)}" for recipe, work in works.items() if work)
        notes.append(f"Share of the full network's multiply-adds that a client's model keeps, by budget: {each}.")
    rejected = Counter[str]()
    for (recipe, _), record in comparison.records.items():
        rejected[recipe] += sum(record.rejected.values())
    if rejected.total():
        notes.append(
            f"Rejected updates: {', '.join(f'{recipe} {count}' for recipe, count in rejected.items() if count)}."
        )
    return Table(f"{comparison.name}: {', '.join(comparison.recipes)}", [*columns, *COSTS], rows, notes)


def difference_table(comparison: Comparison) -> Table:
    """Return how each recipe differs from the first."""
    first = comparison.recipes[0]
    columns = [Column(f"minus {first}", ("recipe",), left=True)]
    columns += [
        Column(heading(key), (f"{key}_difference", f"{key}_half_width", f"{key}_p")) for key in comparison.measures
    ]
    rows = [
        [Cell(recipe, (recipe,))]
        + [Cell(_difference_text(one), (one.mean, one.half_width, one.p_value)) for one in differences.values()]
        for recipe, differences in comparison.differences.items()
    ]
    note = f"Percentage points above {first}, paired by seed (same seed, same partition)"
    test = "; p: two-sided paired t-test." if len(comparison.seeds) > 1 else "; one seed: no interval and no test."
    return Table(f"Differences from {first}", columns, rows, (note + test,))


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{budget}: {share:.4f}" for budget, share in shares.items())


def _costs(down: float, up: float, seconds: float) -> list[Cell]:
    texts = (bytes_text(down), bytes_text(up), seconds_text(seconds))
    return [Cell(text, (value,)) for text, value in zip(texts, (down, up, seconds), strict=True)]


def _estimate_text(one: Estimate) -> str:
    return percent(one.mean) if one.half_width is None else f"{percent(one.mean)} ± {percent(one.half_width)}"


def _difference_text(one: Difference) -> str:
    text = f"{100 * one.mean:+.1f}".replace("-", "−")
    if one.half_width is not None:
        text += f" ± {percent(one.half_width)}"
    return text if one.p_value is None else f"{text} ({_p_text(one.p_value)})"


def _p_text(value: float) -> str:
    return "p<.001" if value < 0.001 else f"p={value:.3f}".replace("0.", ".")
