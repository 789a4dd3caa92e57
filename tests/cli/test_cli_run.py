import json
from pathlib import Path
from typing import Any

import pytest

from framp.config import Config

TINY = str(Path(__file__).with_name("tiny.toml"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, framp: Any) -> Path:
    folder = tmp_path_factory.mktemp("run") / "result"
    assert framp("run", TINY, "--out", folder, "--quiet").code == 0
    return folder


def test_run_ends_with_a_table_and_figures_whose_paths_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framp: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    result = framp("run", TINY, "--recipe", "fiarse", "--seed", "3")
    assert result.code == 0
    folder = Path("runs/digits-fiarse-seed3")
    heading = next(line for line in result.out.splitlines() if "Local" in line)
    assert heading.split() == ["Local", "1/64", "1/16", "1/4", "1", "Union", "down", "up", "time"]
    printed = [line.strip() for line in result.out.splitlines() if line.strip().startswith(str(folder / "figures"))]
    assert {Path(path).name for path in printed} == {"accuracy.svg", "accuracy.png", "clients.svg", "clients.png"}
    assert all(Path(path).stat().st_size > 1000 for path in printed)
    assert "fiarse, seed 3, round 2 of 2: loss" in result.err
    assert "\x1b" not in result.out + result.err


def test_json_is_one_object_on_stdout(tmp_path: Path, framp: Any) -> None:
    result = framp("run", TINY, "--out", tmp_path / "result", "--json")
    value = result.json
    assert value["finished"] is True
    assert value["results"] == json.loads((tmp_path / "result" / "results.json").read_text())
    assert all(Path(path).exists() for path in value["figures"])
    assert "round 2 of 2" in result.err


def test_quiet_prints_one_line(tmp_path: Path, framp: Any) -> None:
    result = framp("run", TINY, "--out", tmp_path / "result", "--quiet")
    assert result.err == ""
    assert result.out.count("\n") == 1
    assert str(tmp_path / "result") in result.out


def test_settings_reach_the_run(finished: Path) -> None:
    config = Config.from_toml(finished / "config.toml")
    assert (config.name, config.rounds, config.model.width, config.partition.clients) == ("digits", 2, 4, 4)


def test_flags_win_over_settings(tmp_path: Path, framp: Any) -> None:
    arguments = [TINY, "--set", "seed=5", "--seed", "7", "--engine", "processes", "--workers", "1"]
    assert framp("run", *arguments, "--out", tmp_path / "result", "--quiet").code == 0
    config = Config.from_toml(tmp_path / "result" / "config.toml")
    assert (config.seed, config.engine.name, config.engine.workers) == (7, "processes", 1)


def test_a_file_of_settings_is_a_preset_named_after_itself(finished: Path, tmp_path: Path, framp: Any) -> None:
    file = tmp_path / "mine.toml"
    lines = (finished / "config.toml").read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith('name = "digits"')))
    result = framp("run", file, "--out", tmp_path / "result", "--json").json
    assert Config.from_toml(tmp_path / "result" / "config.toml").name == "mine"
    assert result["results"]["state_sha256"] == json.loads((finished / "results.json").read_text())["state_sha256"]


def test_resume_of_a_finished_run_shows_it_again(finished: Path, framp: Any) -> None:
    before = (finished / "results.json").stat().st_mtime_ns
    value = framp("resume", finished, "--json").json
    assert value["results"] == json.loads((finished / "results.json").read_text())
    assert (finished / "results.json").stat().st_mtime_ns == before


def test_rejected_updates_are_told(tmp_path: Path, framp: Any) -> None:
    folder = tmp_path / "result"
    value = framp("run", TINY, "--set", "training.rate=1e30", "--rounds", "3", "--out", folder, "--json").json
    assert value["rejected"] == {"values not finite or implausibly large": 6}
    shown = framp("resume", folder)
    assert "Rejected updates: 6 (values not finite or implausibly large 6)." in shown.out
    assert ", 6 updates rejected, " in framp("resume", folder, "--quiet").out
