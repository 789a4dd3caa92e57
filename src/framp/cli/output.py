"""Where a command's words go: results to stdout, progress to stderr, and only what was asked for."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from framp.report.tables import Table

#: Wide enough for every table, where there is no terminal that says how wide it is.
FILE_WIDTH = 1000


@dataclass(frozen=True)
class Output:
    """What the user wants to see."""

    json: bool = False
    quiet: bool = False

    @property
    def wordy(self) -> bool:
        """Whether tables and texts are wanted on stdout."""
        return not (self.json or self.quiet)

    @property
    def progress(self) -> Console:
        """The console on which progress is shown."""
        return console(sys.stderr, self.quiet)

    @property
    def plain_progress(self) -> bool:
        """Whether progress is shown as lines of text, not as a live display."""
        return not self.quiet and not self.progress.is_terminal

    def table(self, table: Table) -> None:
        """Print a table and its notes."""
        if self.wordy:
            screen = console(sys.stdout)
            screen.print()
            picture = table.to_rich()
            if screen.measure(picture, options=screen.options.update(width=FILE_WIDTH)).maximum > screen.width:
                picture = table.transposed().to_rich()
            screen.print(picture)
            for note in table.notes:
                screen.print(note, markup=False, highlight=False, style="dim")

    def files(self, title: str, paths: Sequence[Path]) -> None:
        """Print where files were written; never wrapped, so that they can be copied."""
        if self.wordy and paths:
            print(f"\n{title}")
            for path in paths:
                print(f"  {path}")

    def line(self, text: str) -> None:
        """Print a line of text."""
        if self.wordy:
            print(text)

    def last(self, line: str, value: dict[str, Any]) -> None:
        """Print the last word: the JSON object, or the line if nothing else was said."""
        if self.json:
            print(json.dumps(value, indent=1, ensure_ascii=False))
        elif self.quiet:
            print(line)


def console(file: Any, quiet: bool = False) -> Console:
    """Return a console; without a terminal there are no colours and lines are not broken."""
    terminal = file.isatty()
    return Console(file=file, quiet=quiet, width=None if terminal else FILE_WIDTH, no_color=None if terminal else True)
