import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from framp.config import Config
from framp.engines import Serial
from framp.errors import CheckpointError, ConfigError, DataError, FrampError, RunFolderError
from framp.runs import Outcome, checkpoint, events, resume, start, status
from framp.runs import run as loop
from framp.server.inbox import Inbox


class Heard:
    """Listens and remembers."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def on_event(self, event: dict[str, Any]) -> None:
        self.events.append(event)


def digest(outcome: Outcome) -> str:
    assert outcome.finished
    assert outcome.results is not None
    return str(outcome.results["state_sha256"])


def test_what_a_run_leaves_behind(finished: Outcome, config: Config) -> None:
    assert sorted(os.listdir(finished.folder)) == [
        "checkpoint",
        "config.toml",
        "metrics.jsonl",
        "partition.json",
        "registry.json",
        "registry.safetensors",
        "results.json",
        "tensorboard",
    ]
    assert (finished.finished, finished.round) == (True, 12)
    assert Config.from_toml(finished.folder / "config.toml") == config
    assert status(finished.folder) == {"state": "finished", "round": 12, "rounds": 12}
    assert [one.round for one in checkpoint.available(finished.folder)] == [10, 12]
    log = events.read(finished.folder / "metrics.jsonl")
    expected: list[tuple[str, int | None]] = [("start", None)]
    for number in range(1, 13):
        expected += [("round", number)] + ([("evaluation", number)] if number % 3 == 0 else [])
    assert [(event["event"], event.get("round")) for event in log] == [*expected, ("finished", 12)]
    assert log[0]["recipe"] == "framp"
    assert log[0]["versions"]["torch"] == torch.__version__
    assert finished.results is not None
    assert log[0]["partition_sha256"] == finished.results["partition_sha256"]
    assert log[0]["model"] == finished.results["model"]
    assert log[-2]["clients"] == [client["accuracy"] for client in finished.results["final"]["clients"]]


def test_the_last_round_is_evaluated_and_saved(config: Config, tmp_path: Path) -> None:
    heard = Heard()
    values = {"rounds": 2, "evaluation.every": 5, "checkpoint.every": 5}
    outcome = start(config.with_values(values), tmp_path / "run", [heard])
    kinds = [event["event"] for event in heard.events]
    assert kinds == ["start", "round", "round", "evaluation", "finished"]
    assert heard.events == events.read(tmp_path / "run" / "metrics.jsonl")
    assert [one.round for one in checkpoint.available(outcome.folder)] == [2]


def test_a_stopped_run_goes_on_to_the_same_bits(
    stopped: Path, finished: Outcome, stop_after: Callable[[int], Callable[[], bool]]
) -> None:
    assert status(stopped) == {"state": "unfinished", "round": 5, "rounds": 12}
    heard = Heard()
    again = resume(stopped, [heard], should_stop=stop_after(2))
    assert again == Outcome(False, 7, stopped, None)
    assert heard.events[0] == {"event": "resume", "round": 5}
    assert digest(resume(stopped)) == digest(finished)


def test_another_engine_changes_nothing(stopped: Path, finished: Outcome, config: Config) -> None:
    assert digest(resume(stopped, engine="processes", workers=2)) == digest(finished)
    assert Config.from_toml(stopped / "config.toml") == config


def test_no_client_enrols_twice(stopped: Path, finished: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("asked to enrol again")

    monkeypatch.setattr("framp.federation.enrol", refuse)
    assert digest(resume(stopped)) == digest(finished)


def test_a_finished_run_returns_its_results_at_once(finished: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (finished.folder / "metrics.jsonl").read_bytes()
    monkeypatch.setattr(loop, "parts_of", None)
    assert resume(finished.folder) == finished
    assert (finished.folder / "metrics.jsonl").read_bytes() == before


def test_a_damaged_checkpoint_can_be_stepped_over(
    stopped: Path, finished: Outcome, stop_after: Callable[[int], Callable[[], bool]]
) -> None:
    state = stopped / "checkpoint" / "round-000005" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:100])
    log = (stopped / "metrics.jsonl").read_bytes()
    advice = re.escape(f"{state} is truncated: 100 of ") + ".*" + re.escape(f"`framp resume {stopped} --checkpoint 4`")
    with pytest.raises(CheckpointError, match=advice):
        resume(stopped)
    assert (stopped / "metrics.jsonl").read_bytes() == log
    outcome = resume(stopped, should_stop=stop_after(1), checkpoint=4)
    assert (outcome.round, [one.round for one in checkpoint.available(stopped)]) == (5, [4, 5])
    assert digest(resume(stopped)) == digest(finished)


def test_checkpoint_zero_starts_anew(stopped: Path, finished: Outcome) -> None:
    for one in checkpoint.available(stopped):
        (one.path / "meta.json").write_text("{")
    with pytest.raises(
        CheckpointError, match=r"no intact one is left, start anew with `framp resume .* --checkpoint 0`"
    ):
        resume(stopped)
    heard = Heard()
    assert digest(resume(stopped, [heard], checkpoint=0)) == digest(finished)
    assert heard.events[0] == {"event": "resume", "round": 0}


def test_a_used_folder_is_refused(stopped: Path, finished: Outcome, config: Config, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError) as caught:
        start(config, stopped)
    assert str(caught.value) == (
        f"{stopped} holds a run of framp, seed 0, unfinished at round 5 of 12; "
        f"choose another --out or `framp resume {stopped}`"
    )
    with pytest.raises(RunFolderError, match="a run of framp, seed 0, finished at round 12 of 12"):
        start(config, finished.folder)
    (stopped / "config.toml").write_text("nonsense")
    with pytest.raises(RunFolderError, match=r"config.toml cannot be read; choose another --out or mend that file$"):
        start(config, stopped)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").touch()
    with pytest.raises(RunFolderError, match="holds files that belong to no run"):
        start(config, foreign)
    with pytest.raises(RunFolderError, match=r"thesis.tex is a file; choose another --out$"):
        start(config, foreign / "thesis.tex")
    assert os.listdir(foreign) == ["thesis.tex"]


def test_an_empty_folder_is_used(config: Config, tmp_path: Path) -> None:
    (tmp_path / ".config.toml.0123.partial").touch()  # of a start that was killed
    assert start(config.with_values({"rounds": 1}), tmp_path).finished
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"recipe": "framq"}, ConfigError),
        ({"partition.clients": 2000, "federation.participants": 3}, DataError),
        ({"federation.budgets": ["1/100000", "1"]}, FrampError),
    ],
)
def test_what_cannot_run_leaves_nothing(
    config: Config, tmp_path: Path, values: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        start(config.with_values(values), tmp_path / "runs" / "run")
    assert os.listdir(tmp_path) == []


def test_a_disk_that_is_full_at_the_start_leaves_nothing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_space: Callable[..., Any]
) -> None:
    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(RunFolderError, match=r"no space left on the disk of .*: free some and start again$"):
        start(config, tmp_path / "run")
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_can_be_resumed_from(
    config: Config, tmp_path: Path, finished: Outcome, monkeypatch: pytest.MonkeyPatch, no_space: Callable[..., Any]
) -> None:
    run, calls = tmp_path / "run", iter(range(1, 1000))
    save = checkpoint.save

    def save_twice(*arguments: Any) -> Any:
        if next(calls) == 3:
            monkeypatch.setattr(os, "fsync", no_space)
        return save(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_twice)
        with pytest.raises(RunFolderError, match=f"`framp resume {run}`$"):
            start(config, run)
    monkeypatch.undo()
    assert status(run) == {"state": "unfinished", "round": 4, "rounds": 12}
    assert digest(resume(run)) == digest(finished)


def test_no_run_no_resume(tmp_path: Path) -> None:
    assert status(tmp_path / "none") == {"state": "none", "round": 0, "rounds": 0}
    with pytest.raises(RunFolderError, match=r"there is no run in .*; start one with `framp run --out "):
        resume(tmp_path / "none")


def test_changed_data_are_refused(stopped: Path) -> None:
    partition = stopped / "partition.json"
    text = partition.read_text()
    sha256 = events.read(stopped / "metrics.jsonl")[0]["partition_sha256"]
    partition.write_text(text.replace(sha256, "0" * 64))
    with pytest.raises(RunFolderError, match=r"the data have changed since the run in .* began"):
        resume(stopped)
    partition.write_text("{")
    with pytest.raises(RunFolderError, match=r"partition.json is damaged; delete it and run the same command again"):
        resume(stopped)
    partition.unlink()
    assert resume(stopped, should_stop=lambda: True).round == 6
    assert partition.read_text() == text


def test_a_changed_config_is_refused(stopped: Path, config: Config) -> None:
    (stopped / "config.toml").write_text(config.with_values({"training.rate": 0.2}).to_toml())
    with pytest.raises(CheckpointError, match=r"^config.toml changed since .*round-000005 was written; restore"):
        resume(stopped)
    (stopped / "config.toml").write_text(config.with_values({"checkpoint.every": 4, "name": "other"}).to_toml())
    assert resume(stopped, should_stop=lambda: True).round == 6


def test_a_checkpoint_of_another_shape_is_refused(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = checkpoint.load
    monkeypatch.setattr(checkpoint, "load", lambda one: ({}, load(one)[1]))
    with pytest.raises(CheckpointError, match="does not fit the recipe's state, it comes from another version"):
        resume(stopped)


def test_a_lost_log_is_refused(stopped: Path, finished: Outcome) -> None:
    (stopped / "metrics.jsonl").unlink()
    with pytest.raises(RunFolderError, match="lacks round 1, which the checkpoint of round 5 knows"):
        resume(stopped)
    assert [one.round for one in checkpoint.available(stopped)] == [4, 5]
    assert digest(resume(stopped, checkpoint=0)) == digest(finished)


def test_two_processes_do_not_share_a_folder(config: Config, tmp_path: Path) -> None:
    def try_to_resume() -> bool:
        with pytest.raises(RunFolderError, match=r"another process is at work in .*; wait for it or end it"):
            resume(tmp_path / "run")
        return True

    assert start(config, tmp_path / "run", should_stop=try_to_resume).round == 1


def test_a_round_without_updates_changes_nothing(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inbox, "objection", lambda self, update: "refused for the test")
    start(config.with_values({"rounds": 2, "checkpoint.every": 1}), tmp_path)
    rounds = [event for event in events.read(tmp_path / "metrics.jsonl") if event["event"] == "round"]
    assert [(event["accepted"], event["rejected"], event["loss"]) for event in rounds] == [
        (0, {"refused for the test": 3}, None)
    ] * 2
    first, second = (checkpoint.load(one)[0] for one in checkpoint.available(tmp_path))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_engine_is_closed_whatever_happens(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(Serial, "close", lambda self: closed.append(True))

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(config, tmp_path / "run", should_stop=interrupt)
    assert closed == [True]
    assert status(tmp_path / "run") == {"state": "unfinished", "round": 0, "rounds": 12}


@pytest.fixture
def somewhere(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A run over parquet files in the folder `set` of the working directory, named relative to that."""
    monkeypatch.setenv("FRAMP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    (tmp_path / "elsewhere").mkdir()
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        rows = {"img": list(generator.integers(0, 255, (40, 8, 8), dtype=np.uint8)), "label": [0, 1] * 20}
        datasets.Dataset.from_dict(rows, features=features).to_parquet(str(tmp_path / "set" / f"{split}.parquet"))
    monkeypatch.chdir(tmp_path)
    return config.with_values({"data.source": "huggingface", "data.path": "set", "rounds": 3})


def test_a_run_over_a_local_folder_goes_on_from_any_directory(
    somewhere: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start(somewhere, tmp_path / "run", should_stop=lambda: True).round == 1
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = resume(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    again = start(somewhere.with_values({"data.path": "./elsewhere/../set"}), tmp_path / "again")
    assert found.results is not None
    assert again.results is not None
    for key in ("state_sha256", "config_sha256"):
        assert found.results[key] == again.results[key]


def test_a_run_goes_on_after_its_folder_of_data_has_moved(somewhere: Config, tmp_path: Path) -> None:
    assert start(somewhere, tmp_path / "run", should_stop=lambda: True).round == 1
    os.rename(tmp_path / "set", tmp_path / "elsewhere" / "set")
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace(f"{tmp_path}/set", f"{tmp_path}/elsewhere/set"))
    assert resume(tmp_path / "run").finished


def test_a_run_that_names_its_folder_as_it_was_given_goes_on(
    somewhere: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # as earlier versions wrote it
        patch.setattr(loop, "located", lambda config: config)
        assert start(somewhere, tmp_path / "run", should_stop=lambda: True).round == 1
    assert Config.from_toml(tmp_path / "run" / "config.toml").data.path == "set"
    assert resume(tmp_path / "run").finished
