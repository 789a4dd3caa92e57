import os
import signal
import time
from pathlib import Path

import pytest
from cli_support import TINY, Result, ended, framp, spawn, wait_for_round

ROUNDS = ["--rounds", "80", "--set", "evaluation.every=40"]


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What an uninterrupted run comes to."""
    folder = tmp_path_factory.mktemp("whole") / "result"
    return str(framp("run", *TINY, *ROUNDS, "--out", folder, "--json").json["results"]["state_sha256"])


def _stopped(folder: Path, number: int, *arguments: str) -> Result:
    process = spawn("run", *TINY, *ROUNDS, "--out", folder, *arguments)
    wait_for_round(process, folder, 3)
    process.send_signal(number)
    return ended(process)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_after_the_round_and_says_how_to_resume(
    number: int, code: int, tmp_path: Path, digest: str
) -> None:
    folder = tmp_path / "a run"
    result = _stopped(folder, number)
    assert result.code == code
    assert "Traceback" not in result.err
    assert f"go on with: framp resume '{folder}'" in result.out
    assert not (folder / "results.json").exists()
    assert framp("resume", folder, "--json").json["results"]["state_sha256"] == digest


def test_an_interrupted_run_says_so_in_json(tmp_path: Path) -> None:
    result = _stopped(tmp_path / "result", signal.SIGINT, "--json")
    assert result.code == 130
    assert result.json["finished"] is False
    assert 3 <= result.json["round"] < 80
    assert result.json["resume"] == f"framp resume {tmp_path / 'result'}"


def test_a_second_signal_aborts_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "result"
    long = [*TINY, *ROUNDS, "--set", "training.steps=3000"]
    process = spawn("run", *long, "--out", folder, "--engine", "serial")
    limit = time.monotonic() + 60
    while not (folder / "metrics.jsonl").exists():
        assert time.monotonic() < limit
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None  # a round of 3000 steps takes longer
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    result = ended(process)
    assert result.code == 130
    assert time.monotonic() - started < 3
    assert "Traceback" not in result.err
    assert not (folder / "results.json").exists()


@pytest.mark.xfail(reason="worker processes do not ignore the Ctrl-C that a terminal sends to all", strict=False)
def test_ctrl_c_in_a_terminal_leaves_worker_processes_at_work(tmp_path: Path, digest: str) -> None:
    folder = tmp_path / "result"
    process = spawn("run", *TINY, *ROUNDS, "--out", folder, "--engine", "processes", "--workers", "2")
    wait_for_round(process, folder, 3)
    os.killpg(process.pid, signal.SIGINT)
    result = ended(process)
    assert result.code == 130, result
    assert "Traceback" not in result.err
    assert framp("resume", folder, "--engine", "serial", "--json").json["results"]["state_sha256"] == digest
