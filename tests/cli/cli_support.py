"""How the tests of the command line call it, in this process or in one of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framp.cli import main

SETTINGS = {
    "partition.clients": 4,
    "federation.participants": 2,
    "model.width": 4,
    "generation.hidden": 4,
    "training.steps": 1,
    "evaluation.every": 1,
}
TINY = ["digits", "--rounds", "2", *(part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}"))]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def refused(self, *words: str) -> None:
        """Check that this was bad input: one line that holds all the words, and nothing else."""
        assert self.code == 2, self
        assert self.out == ""
        assert self.err.startswith("error: ")
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1
        for word in words:
            assert word in self.err


def framp(*arguments: object) -> Result:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Result(code, out.getvalue(), err.getvalue())


def spawn(*arguments: object, **options: Any) -> "subprocess.Popen[str]":
    """Start `python -m framp` as a process in a session of its own."""
    command = [sys.executable, "-m", "framp", *(str(argument) for argument in arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes, **options)


def ended(process: "subprocess.Popen[str]") -> Result:
    """Wait for a process to end."""
    out, err = process.communicate(timeout=120)
    return Result(process.returncode, out, err)


def wait_for_round(process: "subprocess.Popen[str]", folder: Path, round: int) -> None:
    """Wait until a run has played a round."""
    log, limit = folder / "metrics.jsonl", time.monotonic() + 60
    while not (log.exists() and f'"event": "round", "round": {round},' in log.read_text()):
        assert process.poll() is None, ended(process)
        assert time.monotonic() < limit
        time.sleep(0.02)
