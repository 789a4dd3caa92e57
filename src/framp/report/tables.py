"""One table, three forms: on the terminal, in Markdown, as comma-separated values."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """What a reader sees, and the values behind it for a spreadsheet."""

    text: str
    values: tuple[object, ...]


@dataclass(frozen=True)
class Column:
    """A heading, and the names of the values behind each cell."""

    heading: str
    keys: tuple[str, ...]
    left: bool = False


@dataclass(frozen=True)
class Table:
    """A titled table; `notes` stand below it."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default_factory=tuple)

    def to_rich(self) -> RichTable:
        """Return the table for the terminal."""
        headed = any(column.heading for column in self.columns)
        title = Text(self.title, style="bold")
        table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=headed)
        for column in self.columns:
            table.add_column(Text(column.heading), justify="left" if column.left else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(cell.text) for cell in row))
        return table

    def transposed(self) -> "Table":
        """Return the same cells with rows and columns exchanged, for a narrow terminal."""
        names = [row[0] for row in self.rows]
        columns = [self.columns[0], *(Column(name.text, (name.text,)) for name in names)]
        rows = [
            [Cell(column.heading, (column.heading,)), *(row[place] for row in self.rows)]
            for place, column in enumerate(self.columns)
            if place
        ]
        return Table(self.title, columns, rows, self.notes)

    def to_markdown(self) -> str:
        """Return the table with its title and notes in Markdown."""
        widths = [
            max(3, len(column.heading), *(len(row[place].text) for row in self.rows))
            for place, column in enumerate(self.columns)
        ]

        def line(texts: Sequence[str]) -> str:
            cells = (
                text.ljust(width) if column.left else text.rjust(width)
                for text, width, column in zip(texts, widths, self.columns, strict=True)
            )
            return f"| {' | '.join(cells)} |"

        rule = (
            "-" * (width - 1) + ("-" if column.left else ":")
            for width, column in zip(widths, self.columns, strict=True)
        )
        lines = [f"### {self.title}", "", line([column.heading for column in self.columns]), f"| {' | '.join(rule)} |"]
        lines += [line([cell.text.replace("|", "\\|") for cell in row]) for row in self.rows]
        lines += ["", *(f"{note}  " for note in self.notes)] if self.notes else []
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Return the values behind the cells; what is missing is empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([key for column in self.columns for key in column.keys])
        for row in self.rows:
            writer.writerow(["" if value is None else value for cell in row for value in cell.values])
        return text.getvalue()


def missing(column: Column) -> Cell:
    """Return the cell of a value that there is not."""
    return Cell(NOTHING, (None,) * len(column.keys))
