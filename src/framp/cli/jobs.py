"""Runs as processes of their own, several at a time."""

import contextlib
import ctypes
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from framp.cli.comparing import Member
from framp.cli.interrupts import STOPPING, Interrupts
from framp.errors import FrampError
from framp.runs import events

PAUSE = 0.2
STOPPED = (0, 130, 143, -signal.SIGINT, -signal.SIGTERM)
"""How a run ends well, or by a signal: the last two before it could say so itself."""

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass
class Job:
    """A run at work."""

    member: Member
    process: subprocess.Popen[bytes]
    complaints: Path
    task: TaskID

    @property
    def round(self) -> int:
        """The last round that was played."""
        path = self.member.folder / "metrics.jsonl"
        found = events.read(path) if path.exists() else []
        return max((event["round"] for event in found if event["event"] == "round"), default=0)

    def error(self) -> FrampError:
        """Return what the run has said on stderr."""
        lines = self.complaints.read_text(errors="replace").strip().splitlines() or ["it was killed"]
        return FrampError(f"{self.member.title} failed: {lines[-1].removeprefix('error: ')}")


class Jobs:
    """Plays runs, `count` at a time. A signal, or a run that fails, lets all others stop after their round."""

    def __init__(self, members: Sequence[Member], count: int, interrupts: Interrupts, console: Console) -> None:
        self._waiting, self._working = list(members), list[Job]()
        self._count, self._interrupts = count, interrupts
        self._error: FrampError | None = None
        bar = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
        self._progress = Progress(*bar, TimeElapsedColumn(), console=console, disable=not console.is_terminal)

    def play(self) -> None:
        """Play all runs, or what can be played until a signal comes."""
        self._interrupts.playing = True
        told = False
        with self._progress, tempfile.TemporaryDirectory() as scratch, self._killed_on_error():
            while self._working or (self._waiting and not self._ending):
                while self._waiting and not self._ending and len(self._working) < self._count:
                    self._start(self._waiting.pop(0), Path(scratch))
                time.sleep(PAUSE)
                for job in list(self._working):
                    self._look_at(job)
                if self._ending and not told:
                    told = True
                    if not self._progress.disable:
                        self._progress.console.print(STOPPING, style="yellow")
                    for job in self._working:
                        job.process.send_signal(signal.SIGINT)
        if self._error:
            raise self._error

    @property
    def _ending(self) -> bool:
        return self._error is not None or self._interrupts.should_stop()

    def _start(self, member: Member, scratch: Path) -> None:
        if member.state == "none":
            config = scratch / f"{member.folder.name}.toml"
            config.write_text(member.config.to_toml(), encoding="utf-8")
            command = ["run", str(config), "--out", str(member.folder)]
        else:
            command = ["resume", str(member.folder)]
        complaints = scratch / f"{member.folder.name}.stderr"
        with complaints.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "framp", *command, "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # a Ctrl-C reaches it through this process alone, and so only once
                preexec_fn=_stopped_with_its_parent,
            )
        task = self._progress.add_task(member.title, total=member.config.rounds)
        self._working.append(Job(member, process, complaints, task))

    def _look_at(self, job: Job) -> None:
        self._progress.update(job.task, completed=job.round)
        code = job.process.poll()
        if code is None:
            return
        self._working.remove(job)
        if code not in STOPPED:
            self._error = self._error or job.error()
        elif self._progress.disable:
            self._progress.console.print(f"{job.member.title}: {'done' if code == 0 else 'stopped'}", markup=False)

    @contextlib.contextmanager
    def _killed_on_error(self) -> Iterator[None]:
        try:
            yield
        finally:
            for job in self._working:
                job.process.kill()
                job.process.wait()


def _stopped_with_its_parent() -> None:
    """Let this new process be stopped after its round, as by Ctrl-C, once its parent is killed; Linux can do that."""
    if _LIBC is not None:
        _LIBC.prctl(_PARENT_DEATH_SIGNAL, signal.SIGINT)
