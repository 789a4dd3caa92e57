import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from framp.cli.interrupts import Interrupts

TINY = str(Path(__file__).with_name("tiny.toml"))

ROUNDS = ["--rounds", "80", "--set", "evaluation.every=40"]


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory, framp: Any) -> str:
    """What an uninterrupted run comes to."""
    folder = tmp_path_factory.mktemp("whole") / "result"
    return str(framp("run", TINY, *ROUNDS, "--out", folder, "--json").json["results"]["state_sha256"])


def _stopped(framp: Any, folder: Path, number: int, *arguments: str) -> Any:
    process = framp.spawn("run", TINY, *ROUNDS, "--out", folder, *arguments)
    framp.wait_for(process, folder, '"round": 3,')
    process.send_signal(number)
    return framp.ended(process)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_after_the_round_and_says_how_to_resume(
    number: int, code: int, tmp_path: Path, digest: str, framp: Any
) -> None:
    folder = tmp_path / "a run"
    result = _stopped(framp, folder, number)
    assert result.code == code
    assert "Traceback" not in result.err
    assert f"go on with: framp resume '{folder}'" in result.out
    assert not (folder / "results.json").exists()
    assert framp("resume", folder, "--json").json["results"]["state_sha256"] == digest


def test_an_interrupted_run_says_so_in_json(tmp_path: Path, framp: Any) -> None:
    result = _stopped(framp, tmp_path / "result", signal.SIGINT, "--json")
    assert result.code == 130
    assert result.json["finished"] is False
    assert 3 <= result.json["round"] < 80
    assert result.json["resume"] == f"framp resume {tmp_path / 'result'}"


def test_a_second_signal_aborts_at_once(tmp_path: Path, framp: Any) -> None:
    folder = tmp_path / "result"
    long = [TINY, *ROUNDS, "--set", "training.steps=3000"]
    process = framp.spawn("run", *long, "--out", folder, "--engine", "serial")
    framp.wait_for(process, folder, "start")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None  # a round of 3000 steps takes longer
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    result = framp.ended(process)
    assert result.code == 130
    assert time.monotonic() - started < 3
    assert "Traceback" not in result.err
    assert not (folder / "results.json").exists()


def test_before_the_first_round_one_signal_is_enough() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end, Interrupts(announce=False) as interrupts:
        signal.raise_signal(signal.SIGTERM)
    assert end.value.code == 143
    assert interrupts.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_in_a_terminal_leaves_worker_processes_at_work(
    tmp_path: Path,
    digest: str,
    framp: Any,
) -> None:
    folder = tmp_path / "result"
    process = framp.spawn("run", TINY, *ROUNDS, "--out", folder, "--engine", "processes", "--workers", "2")
    framp.wait_for(process, folder, '"round": 3,')
    os.killpg(process.pid, signal.SIGINT)
    result = framp.ended(process)
    assert result.code == 130, result
    assert "Traceback" not in result.err
    assert framp("resume", folder, "--engine", "serial", "--json").json["results"]["state_sha256"] == digest


EARLY = """
import os, signal, sys

class CtrlC:
    def find_spec(self, name, path, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
from framp.cli import main
main(["--version"])
"""


def test_ctrl_c_while_the_program_loads_ends_it_without_a_word() -> None:
    ended = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_ctrl_c_while_worker_processes_start_leaves_no_traceback(tmp_path: Path, framp: Any) -> None:
    process = framp.spawn("run", TINY, "--out", tmp_path / "result", "--engine", "processes", "--workers", "2")
    framp.wait_for_child(process, "spawn_main")
    time.sleep(0.3)  # it imports torch
    os.killpg(process.pid, signal.SIGINT)
    result = framp.ended(process)
    assert result.code == 130, result
    assert result.err == ""
