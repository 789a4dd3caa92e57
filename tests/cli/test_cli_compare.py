import csv
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from framp.cli.comparing import Plan
from framp.config import Config
from framp.errors import RunFolderError
from framp.runs import status
from framp.runs.folder import claimed

TINY = str(Path(__file__).with_name("tiny.toml"))

COMPARE = ["compare", TINY, "--recipes", "framp,fiarse", "--seeds", "0,1"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, framp: Any) -> Path:
    folder = tmp_path_factory.mktemp("compare") / "result"
    assert framp(*COMPARE, "--out", folder, "--quiet").out == f"{folder / 'table.md'}\n"
    return folder


def _results(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.glob("*-seed*/*") if path.is_file()}


def test_compare_leaves_runs_tables_and_figures(compared: Path) -> None:
    names = {path.name for path in compared.iterdir()}
    runs = {f"{recipe}-seed{seed}" for recipe in ("framp", "fiarse") for seed in (0, 1)}
    assert names == runs | {"figures", "table.md", "table.csv", "differences.csv", "summary.json"}
    assert {path.name for path in (compared / "figures").iterdir()} == {
        f"{stem}.{suffix}" for stem in ("accuracy", "budgets") for suffix in ("svg", "png")
    }
    assert "95 % CI over 2 seeds" in (compared / "figures" / "accuracy.svg").read_text()


def test_the_numbers_are_those_of_the_runs(compared: Path) -> None:
    summary = json.loads((compared / "summary.json").read_text())
    for recipe in ("framp", "fiarse"):
        runs = [json.loads((compared / f"{recipe}-seed{seed}" / "results.json").read_text()) for seed in (0, 1)]
        assert summary["recipes"][recipe]["local"]["values"] == [run["final"]["local"] for run in runs]
        assert summary["recipes"][recipe]["1/16"]["values"] == [run["final"]["groups"]["1/16"] for run in runs]
    first, second = (summary["recipes"][recipe]["union"] for recipe in ("framp", "fiarse"))
    assert summary["differences"]["fiarse"]["union"]["mean"] == pytest.approx(second["mean"] - first["mean"])
    with (compared / "table.csv").open() as file:
        rows = {row["recipe"]: row for row in csv.DictReader(file)}
    assert float(rows["fiarse"]["union_mean"]) == second["mean"]
    assert float(rows["fiarse"]["union_half_width"]) == second["half_width"]


def test_the_second_time_nothing_runs(compared: Path, framp: Any) -> None:
    before = _results(compared)
    result = framp(*COMPARE, "--out", compared)
    assert result.code == 0
    assert result.err == ""
    assert "4 of 4 runs are there already" in result.out
    assert "paired t-test" in result.out
    assert _results(compared) == before


def test_only_what_is_missing_runs(compared: Path, framp: Any) -> None:
    before = _results(compared)
    value = framp("compare", TINY, "--recipes", "fedavg,framp", "--seeds", "0", "--out", compared, "--json").json
    after = _results(compared)
    assert {path: after[path] for path in before} == before
    assert {Path(path).parent.name for path in after.keys() - before.keys()} == {"fedavg-seed0"}
    assert value["reference"] == "fedavg"
    assert value["recipes"]["framp"]["local"]["half_width"] is None
    assert "no confidence interval" in (compared / "table.md").read_text()


@pytest.mark.parametrize("metric", ["last10", "best"])
def test_other_metrics_come_from_the_same_runs(compared: Path, metric: str, framp: Any) -> None:
    value = framp(*COMPARE, "--out", compared, "--metric", metric, "--json").json
    runs = [json.loads((compared / f"framp-seed{seed}" / "results.json").read_text()) for seed in (0, 1)]
    assert value["recipes"]["framp"]["local"]["values"] == [run[metric]["local"] for run in runs]


def test_runs_of_another_configuration_are_refused(compared: Path, framp: Any) -> None:
    before = _results(compared)
    other = framp(*COMPARE, "--set", "training.rate=0.2", "--out", compared)
    other.refused("training.rate = 0.1", "0.2", "--out", "or --set training.rate=0.1\n")
    framp(*COMPARE, "--rounds", "3", "--out", compared).refused("rounds = 2", "or --rounds 2\n")
    named = framp(*COMPARE, "--set", "federation.shares=[0.1, 0.2, 0.3, 0.4]", "--out", compared)
    named.refused("or --set 'federation.shares=[0.25, 0.25, 0.25, 0.25]'\n")
    framp(*COMPARE, "--set", "model.norm=group", "--out", compared).refused("or --set model.norm=batch\n")
    assert _results(compared) == before


def test_a_folder_of_data_may_be_spelt_in_several_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("set", "other"):
        (tmp_path / name).mkdir()

    def plan(path: str) -> Plan:
        config = Config().with_values({"data.source": "huggingface", "data.path": path})
        return Plan(config, tmp_path / "result", ["framp"], [0])

    file = tmp_path / "result" / "framp-seed0" / "config.toml"
    file.parent.mkdir(parents=True)
    for written in ("set", str(tmp_path / "set")):
        file.write_text(plan(written).config.to_toml())
        for given in ("set", "./other/../set", str(tmp_path / "set")):
            plan(given).check()
        with pytest.raises(RunFolderError, match=r"was run with data.path = .*/set\", this comparison has .*/other\""):
            plan("other").check()


def test_runs_over_another_partition_are_refused(compared: Path, framp: Any) -> None:
    path = compared / "fiarse-seed1" / "partition.json"
    text = path.read_text()
    record = json.loads(text)
    path.write_text(json.dumps(record | {"sha256": "0" * 64}))
    try:
        framp(*COMPARE, "--out", compared).refused("partition", "choose another --out")
    finally:
        path.write_text(text)


@pytest.mark.parametrize("name", ["partition.json", "results.json"])
def test_a_damaged_file_of_a_run_is_named(compared: Path, name: str, framp: Any) -> None:
    path = compared / "fiarse-seed1" / name
    text = path.read_text()
    path.write_text("{")
    try:
        framp(*COMPARE, "--out", compared, "--quiet").refused(f"{path} is damaged", "delete it")
        path.unlink()  # the remedy
        assert framp(*COMPARE, "--out", compared, "--quiet").code == 0
    finally:
        path.write_text(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipes", "framp,fairse"], ["unknown recipe 'fairse'", "'fiarse'"]),
        (["--recipes", ","], ["--recipes"]),
        (["--seeds", "0,one"], ["--seeds", "one"]),
        (["--metric", "finnal"], ["metric 'finnal'", "'final'"]),
        (["--jobs", "0"], ["--jobs"]),
    ],
)
def test_bad_arguments_are_one_line_and_leave_nothing(
    arguments: list[str], words: list[str], tmp_path: Path, framp: Any
) -> None:
    framp(*COMPARE, *arguments, "--out", tmp_path / "result").refused(*words)
    assert not (tmp_path / "result").exists()


def test_jobs_at_the_same_time_give_the_same_bits(compared: Path, tmp_path: Path, framp: Any) -> None:
    folder = tmp_path / "result"
    result = framp("compare", TINY, "--recipes", "framp,fiarse", "--out", folder, "--jobs", "2", "--json")
    assert result.code == 0, result
    for recipe in ("framp", "fiarse"):
        digests = {
            json.loads((parent / f"{recipe}-seed0" / "results.json").read_text())["state_sha256"]
            for parent in (compared, folder)
        }
        assert len(digests) == 1


def test_a_job_that_fails_is_named(tmp_path: Path, framp: Any) -> None:
    folder = tmp_path / "result"
    (folder / "fiarse-seed0").mkdir(parents=True)
    (folder / "fiarse-seed0" / "mine.txt").write_text("mine")
    arguments = ["compare", TINY, "--recipes", "framp,fiarse", "--out", folder, "--jobs", "2", "--quiet"]
    framp(*arguments).refused("fiarse, seed 0", "belong to no run")
    assert (folder / "fiarse-seed0" / "mine.txt").exists()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupted_comparison_goes_on_where_it_stopped(
    jobs: str,
    tmp_path: Path,
    framp: Any,
) -> None:
    folder = tmp_path / "result"
    arguments = ["compare", TINY, "--rounds", "60", "--set", "evaluation.every=30", "--recipes", "framp,fiarse"]
    process = framp.spawn(*arguments, "--out", folder, "--jobs", jobs)
    framp.wait_for(process, folder / "framp-seed0", '"round": 3,')
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    result = framp.ended(process)
    assert result.code == 130, result
    assert "Traceback" not in result.err
    assert "the same command" in result.out
    assert not (folder / "summary.json").exists()
    time.sleep(0.1)
    assert not (folder / "framp-seed0" / "results.json").exists()
    value = framp(*arguments, "--out", folder, "--json").json
    assert set(value["recipes"]) == {"framp", "fiarse"}


def test_jobs_that_end_before_they_have_begun_are_no_failure(tmp_path: Path, framp: Any) -> None:
    arguments = ["compare", TINY, "--recipes", "framp,fiarse", "--out", tmp_path / "result", "--jobs", "2"]
    process = framp.spawn(*arguments)
    framp.wait_for_child(process, "--quiet")
    process.send_signal(signal.SIGINT)
    result = framp.ended(process)
    assert result.code == 130, result
    assert "stopped with 0 of 2 runs done; go on with the same command" in result.out


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_in_the_last_round_of_all_ends_with_the_tables(jobs: str, tmp_path: Path, framp: Any) -> None:
    folder = tmp_path / "result"
    arguments = ["compare", TINY, "--rounds", "1", "--set", "training.steps=1500", "--recipes", "framp"]
    process = framp.spawn(*arguments, "--out", folder, "--jobs", jobs)
    framp.wait_for(process, folder / "framp-seed0", "start")
    process.send_signal(signal.SIGINT)
    result = framp.ended(process)
    assert result.code == 0, result
    assert (folder / "summary.json").exists()
    assert "table.md" in result.out


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody is told that its parent has ended")
def test_jobs_stop_when_the_comparison_is_killed(tmp_path: Path, framp: Any) -> None:
    folder = tmp_path / "result"
    arguments = ["compare", TINY, "--rounds", "100000", "--recipes", "framp", "--out", folder, "--jobs", "2"]
    process = framp.spawn(*arguments)
    framp.wait_for(process, folder / "framp-seed0", '"round": 3,')
    (job,) = psutil.Process(process.pid).children()
    process.kill()
    framp.ended(process)
    job.wait(60)
    with claimed(folder / "framp-seed0"):  # nobody else is at work in it
        found = status(folder / "framp-seed0")
    assert found["state"] == "unfinished"
    assert found["round"] >= 3
