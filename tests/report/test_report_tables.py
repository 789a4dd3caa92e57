import csv
import io

import pytest
from rich.console import Console

from framp.report.tables import Cell, Column, Table, missing
from framp.report.units import bytes_text, percent, seconds_text

LOCAL = Column("Local", ("local_mean", "local_half_width"))
TABLE = Table(
    "two recipes",
    [Column("recipe", ("recipe",), left=True), LOCAL],
    [[Cell("framp", ("framp",)), Cell("51.0 ± 2.0", (0.51, 0.02))], [Cell("fi|arse", ("fi|arse",)), missing(LOCAL)]],
    ["In %."],
)


def test_markdown() -> None:
    assert TABLE.to_markdown().splitlines() == [
        "### two recipes",
        "",
        "| recipe  |      Local |",
        "| ------- | ---------: |",
        "| framp   | 51.0 ± 2.0 |",
        "| fi\\|arse |          – |",
        "",
        "In %.  ",
    ]


def test_csv_holds_the_values_behind_the_cells() -> None:
    rows = list(csv.DictReader(io.StringIO(TABLE.to_csv())))
    assert rows[0] == {"recipe": "framp", "local_mean": "0.51", "local_half_width": "0.02"}
    assert rows[1] == {"recipe": "fi|arse", "local_mean": "", "local_half_width": ""}


def test_terminal_shows_markup_as_it_is() -> None:
    table = Table("[bold]", [Column("[red]a", ("a",))], [[Cell("[link]", (1,))]])
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(table.to_rich())
    text = console.export_text()
    assert all(word in text for word in ("[bold]", "[red]a", "[link]"))


def test_transposed_exchanges_rows_and_columns() -> None:
    assert TABLE.transposed().to_markdown().splitlines()[2:5] == [
        "| recipe |      framp | fi|arse |",
        "| ------ | ---------: | ------: |",
        "| Local  | 51.0 ± 2.0 |       – |",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1234, "1.23 kB"), (999_600, "1 MB"), (5_019_200, "5.02 MB")],
)
def test_bytes(count: float, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.421, "0.42 s"), (9.96, "10.0 s"), (59.96, "1 min 00 s"), (245, "4 min 05 s"), (7620, "2 h 07 min")],
)
def test_seconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_percent() -> None:
    assert percent(0.5432) == "54.3"
