"""What a run shows while it runs: live on a terminal, a line an evaluation elsewhere."""

from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from framp.cli.interrupts import STOPPING
from framp.config import Config
from framp.report.units import bytes_text, percent


class RunProgress:
    """Listens to a run and shows where it is."""

    def __init__(self, config: Config, console: Console, should_stop: Callable[[], bool]) -> None:
        self._console, self._rounds, self._should_stop = console, config.rounds, should_stop
        self._title = f"{config.recipe}, seed {config.seed}"
        self._loss: float | None = None
        self._evaluation: dict[str, Any] | None = None
        self._bytes = {"down": 0, "up": 0}
        self._rejected = 0
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("[dim]elapsed"),
            TimeElapsedColumn(),
            TextColumn("[dim]left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task(self._title, total=config.rounds)
        self._live = Live(console=console, get_renderable=self._picture, refresh_per_second=4, transient=True)

    def on_event(self, event: dict[str, Any]) -> None:
        """Take note of an event."""
        kind, round = event["event"], event.get("round", 0)
        if kind == "resume":
            self._progress.reset(self._task, completed=round)
        elif kind == "round":
            self._loss = event["loss"]
            self._bytes["down"] += event["bytes_down"]
            self._bytes["up"] += event["bytes_up"]
            self._rejected += sum(event["rejected"].values())
            self._progress.update(self._task, completed=round)
            if not event["accepted"]:
                self._console.print(f"round {round}: no valid update; the state stays as it was", style="yellow")
        elif kind == "evaluation":
            self._evaluation = event
            if not self._console.is_terminal:
                line = f"{self._title}, round {round} of {self._rounds}: {self._numbers()}"
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> "RunProgress":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def _picture(self) -> Group:
        numbers = Text(f"  {self._numbers()}", style="dim")
        return Group(self._progress, numbers, *([Text(STOPPING, style="yellow")] if self._should_stop() else []))

    def _numbers(self) -> str:
        parts = [] if self._loss is None else [f"loss {self._loss:.3f}"]
        if self._evaluation:
            parts += [f"{name.title()} {percent(self._evaluation[name])} %" for name in ("local", "union")]
        if self._bytes["down"]:
            parts += [f"{way} {bytes_text(count)}" for way, count in self._bytes.items()]
        if self._rejected:
            parts.append(f"rejected {self._rejected}")
        return "  ".join(parts) or "preparing data and clients"
