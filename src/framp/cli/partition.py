"""`framp partition`: who would hold which samples, before anything is trained."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from framp.cli import options
from framp.cli.output import Output


def partition(
    preset: options.Preset,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the table and the figure.")],
    settings: options.Set = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Deal the data out as a run would, and show each client's labels, sizes and overlap of train and test.

    Of a graph, show each client's subgraph too: its nodes, the edges that it keeps and those that are cut.
    """
    output = Output(json, quiet)
    config = options.configured(preset, settings)
    from framp.data.clients import dealt
    from framp.report.label_figure import label_figure
    from framp.report.labels import Labels, label_table, labels_csv
    from framp.runs.atomic import write_text

    data = dealt(config)
    labels = Labels.of(config, *data.labels, data.dataset.classes, data.partition)
    labels.refuse_other(out)
    again = "run the same command again"
    with _all_or_nothing(out):
        figures = label_figure(labels, out / "figures")
        write_text(out / "labels.csv", labels_csv(labels), again)
        write_text(out / "partition.json", labels.to_json(data.partition), again)
    output.table(label_table(labels))
    output.files("Files", [out / "partition.json", out / "labels.csv", *figures])
    value = labels.summary() | {"folder": str(out), "figures": [str(path) for path in figures]}
    output.last(f"partition {labels.sha256} in {out}", value)


@contextmanager
def _all_or_nothing(folder: Path) -> Iterator[None]:
    """Take back what the block has added to a folder if it fails; what was there before stays, it is the same."""
    names = ("", "figures", "figures/labels.svg", "figures/labels.png", "labels.csv", "partition.json")
    new = [folder / name for name in names if not (folder / name).exists()]
    try:
        yield
    except BaseException:
        for path in reversed(new):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise
