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

import psutil
import pytest

from framp.cli import main


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


class CommandLine:
    def __call__(self, *arguments: object) -> Result:
        """Run the command line in this process."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main([str(argument) for argument in arguments])
            except SystemExit as end:
                code = end.code
        assert isinstance(code, int)
        return Result(code, out.getvalue(), err.getvalue())

    def spawn(self, *arguments: object, **options: Any) -> "subprocess.Popen[str]":
        """Start `python -m framp` as a process in a session of its own."""
        command = [sys.executable, "-m", "framp", *(str(argument) for argument in arguments)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment, start_new_session=True, **pipes, **options)

    def ended(self, process: "subprocess.Popen[str]") -> Result:
        """Wait for a process to end."""
        out, err = process.communicate(timeout=120)
        return Result(process.returncode, out, err)

    def wait_for(self, process: "subprocess.Popen[str]", folder: Path, words: str) -> None:
        """Wait until a run has written some words into its log."""
        log, limit = folder / "metrics.jsonl", time.monotonic() + 60
        while not (log.exists() and words in log.read_text()):
            assert process.poll() is None, self.ended(process)
            assert time.monotonic() < limit
            time.sleep(0.02)

    def wait_for_child(self, process: "subprocess.Popen[str]", word: str) -> None:
        """Wait until a process has started another one that has a word among its arguments."""
        parent, limit = psutil.Process(process.pid), time.monotonic() + 60
        while not any(word in argument for child in parent.children() for argument in child.cmdline()):
            assert process.poll() is None, self.ended(process)
            assert time.monotonic() < limit
            time.sleep(0.02)


@pytest.fixture(scope="session")
def framp() -> CommandLine:
    return CommandLine()
