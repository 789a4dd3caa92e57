"""`framp run` and `framp resume`."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framp.cli import options
from framp.cli.interrupts import Interrupts
from framp.cli.output import Output
from framp.cli.progress import RunProgress
from framp.config import Config
from framp.errors import RunFolderError

if TYPE_CHECKING:
    from framp.report.record import Record

Runner = Callable[[list[Any], Callable[[], bool]], Any]
"""Plays rounds until the end or until told to stop, tells listeners, and returns the outcome."""


def run(
    preset: options.Preset = "digits",
    recipe: Annotated[str | None, typer.Option(metavar="NAME", help="The method: see `framp recipes`.")] = None,
    rounds: options.Rounds = None,
    seed: Annotated[int | None, typer.Option(metavar="S", help="Seed of the network, sampling and batches.")] = None,
    engine: options.Engine = None,
    workers: options.Workers = None,
    settings: options.Set = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Run folder; else runs/<preset>-<recipe>-seed<seed>.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a federation, then show a table and write figures. Ctrl-C stops after the round."""
    config = options.configured(
        preset, settings, recipe=recipe, rounds=rounds, seed=seed, engine__name=engine, engine__workers=workers
    )
    folder = out or Path("runs") / f"{config.name}-{config.recipe}-seed{config.seed}"
    from framp import runs

    def runner(listeners: list[Any], should_stop: Callable[[], bool]) -> Any:
        return runs.start(config, folder, listeners, should_stop)

    finish(play(runner, config, Output(json, quiet)), config, Output(json, quiet))


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an unfinished run.")],
    engine: options.Engine = None,
    workers: options.Workers = None,
    checkpoint: Annotated[
        int | None, typer.Option(metavar="ROUND", help="Go back to the checkpoint of this round; 0 starts anew.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with a run that was interrupted, from its last checkpoint."""
    from framp import runs

    if runs.status(folder)["state"] == "none":
        raise RunFolderError(
            f"{folder} holds no run; name the folder of one, or start one with `framp run --out {folder}`"
        )
    config = Config.from_toml(folder / "config.toml")

    def runner(listeners: list[Any], should_stop: Callable[[], bool]) -> Any:
        return runs.resume(folder, listeners, should_stop, engine, workers, checkpoint)

    finish(play(runner, config, Output(json, quiet)), config, Output(json, quiet))


def play(runner: Runner, config: Config, output: Output) -> Any:
    """Play a run to its end; a signal ends the program with its exit code once the state is saved."""
    interrupts = Interrupts(output.plain_progress)
    progress = RunProgress(config, output.progress, interrupts.should_stop)
    with interrupts, progress:
        outcome = runner([progress, interrupts], interrupts.should_stop)
    if outcome.finished:
        return outcome
    command = f"framp resume {shlex.quote(str(outcome.folder))}"
    text = f"stopped after round {outcome.round} of {config.rounds}; go on with: {command}"
    output.line(text)
    value = {"finished": False, "round": outcome.round, "folder": str(outcome.folder), "resume": command}
    output.last(text, value)
    raise typer.Exit(interrupts.exit_code)


def finish(outcome: Any, config: Config, output: Output) -> None:
    """Draw the figures of a finished run and print what it has reached."""
    from framp.report.summaries import run_table

    record, figures = draw(Path(outcome.folder))
    table = run_table(record, config.name)
    output.table(table)
    output.files("Figures", figures)
    output.files("Everything else", [record.folder])
    measures = record.measures()
    rejected = f"{sum(record.rejected.values())} updates rejected, " if record.rejected else ""
    line = (
        f"{table.title}: Local {100 * measures['local']:.1f} %, Union {100 * measures['union']:.1f} %, "
        f"{rejected}{record.folder}"
    )
    value = {"finished": True, "folder": str(record.folder), "figures": [str(path) for path in figures]}
    output.last(line, value | {"rejected": record.rejected, "results": record.results})


def draw(folder: Path) -> "tuple[Record, list[Path]]":
    """Draw the figures of a finished run; return what it says of itself, and the files."""
    from framp.report.figures import run_figures
    from framp.report.record import Record

    record = Record.read(folder)
    return record, run_figures(record, folder / "figures")
