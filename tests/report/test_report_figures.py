import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from framp.errors import RunFolderError
from framp.report.comparison import Comparison
from framp.report.comparison_figures import comparison_figures
from framp.report.figures import run_figures
from framp.report.label_figure import label_figure
from framp.report.labels import Labels
from framp.report.record import Record
from framp.report.style import colour, dash, hatch
from framp.report.summaries import comparison_table, difference_table, run_table

BUDGETS = ["1/16", "1"]


def _evaluation(round: int, local: float) -> dict[str, Any]:
    groups = {"1/16": local - 0.1, "1": local + 0.1}
    return {"event": "evaluation", "round": round, "local": local, "union": local / 2, "groups": groups, "clients": []}


def _record(recipe: str, seed: int, local: float) -> Record:
    clients = [{"id": n, "budget": BUDGETS[n % 2], "accuracy": local + (-0.1 if n % 2 == 0 else 0.1)} for n in range(6)]
    final = {"local": local, "groups": {"1/16": local - 0.1, "1": local + 0.1}, "union": local / 2, "clients": clients}
    results = {
        "recipe": recipe,
        "seed": seed,
        "rounds": 4,
        "partition_sha256": "ab" * 32,
        "final": final,
        "best": {"round": 4, "local": local, "union": local / 2},
        "last10": {"local": local - 0.05, "union": local / 2},
        "cost": {"bytes_down": 2_000_000, "bytes_up": 1_000_000, "round_seconds": [1.0, 2.0]},
    }
    evaluations = [_evaluation(2, local - 0.1), _evaluation(4, local)]
    return Record(Path(f"{recipe}-seed{seed}"), results, evaluations)


@pytest.fixture
def comparison() -> Comparison:
    accuracies = {("framp", 0): 0.5, ("framp", 1): 0.6, ("fiarse", 0): 0.4, ("fiarse", 1): 0.45}
    records = {(recipe, seed): _record(recipe, seed, local) for (recipe, seed), local in accuracies.items()}
    return Comparison("toy", ["framp", "fiarse"], [0, 1], records)


def _check(paths: list[Path], *words: str) -> None:
    assert {path.suffix for path in paths} == {".svg", ".png"}
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.width > 500
                assert len(np.unique(np.asarray(image.convert("L")))) > 10
    text = "".join(path.read_text() for path in paths if path.suffix == ".svg")
    for word in words:
        assert word in text


def test_figures_of_a_run(tmp_path: Path) -> None:
    paths = run_figures(_record("framp", 0, 0.5), tmp_path / "figures")
    assert sorted(path.name for path in paths) == ["accuracy.png", "accuracy.svg", "clients.png", "clients.svg"]
    _check(paths, "accuracy (%)", "round", "Local", "Union", "1/16", "framp, seed 0", "budget")
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(path.name for path in paths)


def test_the_same_run_gives_the_same_svg(tmp_path: Path) -> None:
    texts = [
        [path.read_bytes() for path in run_figures(_record("framp", 0, 0.5), tmp_path / name) if path.suffix == ".svg"]
        for name in ("first", "second")
    ]
    assert texts[0] == texts[1]


def test_figures_of_a_comparison(comparison: Comparison, tmp_path: Path) -> None:
    paths = comparison_figures(comparison, tmp_path)
    _check(paths, "framp", "fiarse", "95 % CI over 2 seeds", "Local", "Union", "accuracy (%)", "1/16")


def test_figures_of_one_seed_claim_no_interval(comparison: Comparison, tmp_path: Path) -> None:
    records = {key: record for key, record in comparison.records.items() if key[1] == 0}
    paths = comparison_figures(Comparison("toy", ["framp", "fiarse"], [0], records), tmp_path)
    _check(paths, "one seed")
    assert all("CI" not in path.read_text() for path in paths if path.suffix == ".svg")


def test_figure_of_a_partition(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 20, size=(100, 100))
    labels = Labels("toy", "dirichlet, α = 0.3, matched test", counts, counts // 2, "ab" * 32)
    _check(label_figure(labels, tmp_path), "Training samples", "Overlap", "α = 0.3", "client")


def test_figure_of_a_graphs_partition(graph_labels: Labels, tmp_path: Path) -> None:
    words = ("toy (metis)", "Training nodes", "Test nodes", "validation nodes", "edges kept", "edges cut", "Overlap")
    paths = label_figure(graph_labels, tmp_path)
    _check(paths, *words)
    assert all("samples" not in path.read_text() for path in paths if path.suffix == ".svg")


def test_figure_of_a_single_client_counts_whole_clients(tmp_path: Path) -> None:
    counts = np.ones((1, 3), dtype=np.int64)
    (svg, _) = label_figure(Labels("toy", "iid, matched test", counts, counts, "ab" * 32), tmp_path)
    assert ">−0.4<" not in svg.read_text()


def test_a_figure_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("a file is in the way")
    with pytest.raises(RunFolderError, match="figures"):
        run_figures(_record("framp", 0, 0.5), tmp_path / "figures")


def test_table_of_a_run_never_mixes_rounds() -> None:
    table = run_table(_record("framp", 0, 0.5), "toy")
    assert [column.heading for column in table.columns] == ["", "Local", "1/16", "1", "Union", "down", "up", "time"]
    texts = [[cell.text for cell in row] for row in table.rows]
    assert texts[0] == ["round 4", "50.0", "40.0", "60.0", "25.0", "2 MB", "1 MB", "3.00 s"]
    assert texts[1] == ["mean of last 2", "45.0", "–", "–", "25.0", "–", "–", "–"]
    assert texts[2] == ["best, round 4", "50.0", "–", "–", "25.0", "–", "–", "–"]


def test_rejected_updates_stand_below_a_table(comparison: Comparison) -> None:
    assert len(run_table(_record("framp", 0, 0.5), "toy").notes) == len(comparison_table(comparison).notes) == 1
    for seed in (0, 1):
        record = comparison.records["fiarse", seed]
        comparison.records["fiarse", seed] = dataclasses.replace(record, rejected={"wrong shape": 3, "wrong round": 1})
    table = run_table(comparison.records["fiarse", 0], "toy")
    assert table.notes[1] == "Rejected updates: 4 (wrong shape 3, wrong round 1)."
    assert comparison_table(comparison).notes[1] == "Rejected updates: fiarse 8."


def test_what_clients_really_hold_stands_below_a_table(comparison: Comparison) -> None:
    for seed in (0, 1):
        record = comparison.records["fiarse", seed]
        comparison.records["fiarse", seed] = dataclasses.replace(record, held={"1/16": 0.0657, "1": 1.0})
    table = run_table(comparison.records["fiarse", 0], "toy")
    assert table.notes[1] == "Fraction of the full model that a client of each budget gets: 1/16: 0.0657, 1: 1.0000."
    assert comparison_table(comparison).notes[1] == "fiarse takes more than the budget: 1/16: 0.0657."


def test_what_clients_models_work_stands_below_a_table(comparison: Comparison) -> None:
    record = comparison.records["fiarse", 0]
    evaluations = [record.evaluations[0], record.evaluations[-1] | {"work": {"1/16": 0.27, "1": 1.0}}]
    comparison.records["fiarse", 0] = dataclasses.replace(record, evaluations=evaluations)
    assert run_table(comparison.records["fiarse", 0], "toy").notes[1] == (
        "Share of the full network's multiply-adds that it keeps: 1/16: 0.2700, 1: 1.0000."
    )
    assert comparison_table(comparison).notes[1] == (
        "Share of the full network's multiply-adds that a client's model keeps, by budget: "
        "fiarse 1/16: 0.2700, 1: 1.0000."
    )


def test_tables_of_a_comparison(comparison: Comparison) -> None:
    table = comparison_table(comparison)
    # two seeds, .5 and .6: deviation .0707, t = 12.706, half width 12.706·.05
    assert [cell.text for cell in table.rows[0]][:2] == ["framp", "55.0 ± 63.5"]
    differences = difference_table(comparison)
    assert "paired by seed" in differences.notes[0]
    # differences -.1 and -.15: t = -.125/.025 = -5; with one degree of freedom p = 1 - 2·atan(5)/π
    assert [cell.text for cell in differences.rows[0]][:2] == ["fiarse", "−12.5 ± 31.8 (p=.126)"]


def test_no_two_of_many_methods_look_alike() -> None:
    lines = [(colour(place), dash(place)) for place in range(24)]
    bars = [(colour(place), hatch(place)) for place in range(24)]
    assert len(set(lines)) == len(set(bars)) == 24
    assert [dash(0), hatch(0)] == ["-", ""]
