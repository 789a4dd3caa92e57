"""A run that is killed at any moment goes on to the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from framp.config import Config
from framp.runs import Outcome, checkpoint, events, results

KILLED = -signal.SIGKILL


class Zygote:
    """Starts and kills runs in processes of their own."""

    def __init__(self, config: Path) -> None:
        self.config = str(config)
        command = [sys.executable, str(Path(__file__).with_name("zygote.py"))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self, folder: Path, pause: list[Any] | None = None, kill_after: float | None = None) -> int:
        assert self.process.stdin is not None
        request = {"config": self.config, "folder": str(folder), "pause": pause, "kill_after": kill_after}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.line())

    def run(self, folder: Path) -> int:
        """Run to the end."""
        self.begin(folder)
        return int(self.line())

    def run_and_kill(self, folder: Path, delay: float) -> int:
        """Kill the run after a while; say how it ended, for it may have been faster."""
        self.begin(folder, kill_after=delay)
        return int(self.line())

    def run_and_kill_at(self, folder: Path, module: str, name: str, when: str, count: int) -> None:
        """Kill the run while it stands still at a certain place."""
        reached = folder.with_name("reached")
        reached.unlink(missing_ok=True)
        child = self.begin(folder, [module, name, when, count, str(reached)])
        deadline = time.monotonic() + 60
        while not reached.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        assert reached.exists()
        os.kill(child, signal.SIGKILL)
        assert int(self.line()) == KILLED


@pytest.fixture(scope="module")
def zygote(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    path = tmp_path_factory.mktemp("zygote") / "config.toml"
    path.write_text(config.to_toml())
    zygote = Zygote(path)
    with zygote.process:
        yield zygote


def check(folder: Path, reference: Outcome) -> None:
    """The run has the same state, events and results as the one that nobody disturbed, and left nothing lying about."""
    expected = reference.results
    assert expected is not None
    found = results.read(folder)
    assert found["state_sha256"] == expected["state_sha256"]
    assert without_times(found) == without_times(expected)
    assert numbers(folder) == numbers(reference.folder)
    assert [one.round for one in checkpoint.available(folder)] == [10, 12]
    assert sorted(os.listdir(folder / "checkpoint")) == ["round-000010", "round-000012"]
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "cost": {key: record["cost"][key] for key in ("bytes_down", "bytes_up")}}


def numbers(folder: Path) -> list[dict[str, Any]]:
    kept = [event for event in events.read(folder / "metrics.jsonl") if event["event"] in ("round", "evaluation")]
    return [{key: value for key, value in event.items() if "seconds" not in key} for event in kept]


def survive(zygote: Zygote, folder: Path, reference: Outcome, kills: int, seed: int) -> None:
    """Kill runs at random moments, as many times as asked, and check each run's end."""
    moments, killed, runs = random.Random(seed), 0, 0
    while killed < kills:
        runs += 1
        run, code = folder / f"run{runs}" / "run", KILLED
        run.parent.mkdir()
        while code == KILLED and killed < kills:
            code = zygote.run_and_kill(run, moments.uniform(0.02, 0.6))
            killed += code == KILLED
            print(f"run {runs}, exit {code}, checkpoints {[one.round for one in checkpoint.available(run)]}")
        if code == KILLED:
            code = zygote.run(run)
        assert code == 0
        check(run, reference)


def test_four_kills_at_random_moments(zygote: Zygote, tmp_path: Path, finished: Outcome) -> None:
    survive(zygote, tmp_path, finished, kills=4, seed=1)


@pytest.mark.slow
def test_twenty_kills_at_random_moments(zygote: Zygote, tmp_path: Path, finished: Outcome) -> None:
    survive(zygote, tmp_path, finished, kills=20, seed=2)


@pytest.mark.parametrize(
    ("module", "name", "when", "count", "rounds"),
    [
        pytest.param("framp.runs.folder", "write_text", "before", 1, [], id="config"),
        pytest.param("framp.runs.tensors", "save_file", "after", 1, [], id="registry"),
        pytest.param("framp.runs.tensors", "save_file", "before", 3, [2], id="tensors"),
        pytest.param("framp.runs.tensors", "save_file", "after", 4, [2, 4], id="before-the-rename"),
        pytest.param("framp.runs.atomic", "_exchange", "after", 4, [4, 6, 8], id="after-the-rename"),
        pytest.param("framp.runs.checkpoint", "remove_leftovers", "before", 1, [4, 6], id="removal"),
        pytest.param("framp.runs.results", "write_json", "before", 1, [10, 12], id="results"),
    ],
)
def test_a_kill_in_the_middle_of_a_write(
    zygote: Zygote, tmp_path: Path, finished: Outcome, module: str, name: str, when: str, count: int, rounds: list[int]
) -> None:
    run = tmp_path / "run"
    zygote.run_and_kill_at(run, module, name, when, count)
    assert [one.round for one in checkpoint.available(run)] == rounds
    for one in checkpoint.available(run):
        checkpoint.load(one)
    assert zygote.run(run) == 0
    check(run, finished)


def test_a_kill_while_the_log_is_rewound(zygote: Zygote, tmp_path: Path, finished: Outcome) -> None:
    run = tmp_path / "run"
    zygote.run_and_kill_at(run, "framp.runs.run", "finite", "before", 7)  # round 5 is played, but not written down
    zygote.run_and_kill_at(run, "framp.runs.events", "write_text", "before", 1)
    zygote.run_and_kill_at(run, "framp.runs.events", "write_text", "after", 1)
    assert zygote.run(run) == 0
    check(run, finished)
