"""`framp compare`: several methods on the same seeds."""

import json as json_module
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from framp.cli import options
from framp.cli.comparing import Member, Plan
from framp.cli.interrupts import Interrupts
from framp.cli.output import Output
from framp.errors import ConfigError


def compare(
    preset: options.Preset,
    recipes: Annotated[str, typer.Option(metavar="A,B,…", help="The methods; the first is the reference.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of all the runs and of the tables and figures.")],
    seeds: Annotated[str, typer.Option(metavar="0,1,…", help="The seeds, shared by all methods.")] = "0",
    rounds: options.Rounds = None,
    settings: options.Set = None,
    metric: Annotated[
        str, typer.Option(metavar="final|last10|best", help="Which accuracies: those of the last round, or others.")
    ] = "final",
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Runs at the same time, each in its process.")] = 1,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run what is missing, resume what is unfinished, then compare: means, intervals, paired differences.

    The seeds pair the methods: on one seed all have the same partition, the same initial network and the same
    sampling of clients.
    """
    output = Output(json, quiet)
    plan = _plan(preset, settings, rounds, _items(recipes, "--recipes"), _items(seeds, "--seeds"), out)
    _check_metric(metric)
    plan.check()
    todo = [member for member in plan.members if member.state != "finished"]
    if len(todo) < len(plan.members):
        output.line(f"{len(plan.members) - len(todo)} of {len(plan.members)} runs are there already")
    with Interrupts(output.plain_progress) as interrupts:
        if jobs > 1:
            _play_together(todo, jobs, interrupts, output)
        else:
            _play_in_turn(todo, interrupts, output)
    if interrupts.should_stop() and any(member.state != "finished" for member in plan.members):
        _say_stopped(plan, output)
        raise typer.Exit(interrupts.exit_code)
    plan.check_data()
    _report(plan, metric, output)


def _plan(
    preset: str, settings: list[str] | None, rounds: int | None, recipes: list[str], seeds: list[str], out: Path
) -> Plan:
    for seed in seeds:
        if not seed.isdecimal():
            raise ConfigError(f"--seeds names '{seed}'; write whole numbers with commas between them, such as 0,1,2")
    for recipe in recipes:
        options.check_recipe(recipe)
    config = options.configured(preset, settings, rounds=rounds)
    numbers = list(dict.fromkeys(int(seed) for seed in seeds))
    return Plan(config, out, list(dict.fromkeys(recipes)), numbers)


def _items(text: str, option: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise ConfigError(f"{option} is empty; write names with commas between them")
    return items


def _check_metric(metric: str) -> None:
    from framp.errors import unknown
    from framp.report.record import METRICS

    if metric not in METRICS:
        raise ConfigError(unknown("metric", metric, METRICS))


def _play_in_turn(todo: list[Member], interrupts: Interrupts, output: Output) -> None:
    from framp import runs
    from framp.cli.progress import RunProgress
    from framp.cli.run import draw

    for member in todo:
        if interrupts.should_stop():
            return
        interrupts.playing = False
        with RunProgress(member.config, output.progress, interrupts.should_stop) as progress:
            listeners: list[Any] = [progress, interrupts]
            if member.state == "none":
                outcome = runs.start(member.config, member.folder, listeners, interrupts.should_stop)
            else:
                outcome = runs.resume(member.folder, listeners, interrupts.should_stop)
        if outcome.finished:
            draw(member.folder)


def _play_together(todo: list[Member], jobs: int, interrupts: Interrupts, output: Output) -> None:
    from framp.cli.jobs import Jobs

    Jobs(todo, jobs, interrupts, output.progress).play()


def _say_stopped(plan: Plan, output: Output) -> None:
    done = sum(member.state == "finished" for member in plan.members)
    command = shlex.join(["framp", *sys.argv[1:]])
    text = f"stopped with {done} of {len(plan.members)} runs done; go on with the same command: {command}"
    output.line(text)
    output.last(text, {"finished": False, "runs": len(plan.members), "done": done, "folder": str(plan.folder)})


def _report(plan: Plan, metric: str, output: Output) -> None:
    from framp.report.comparison import Comparison
    from framp.report.comparison_figures import comparison_figures
    from framp.report.record import Record
    from framp.report.summaries import comparison_table, difference_table
    from framp.runs.atomic import write_text

    records = {(one.config.recipe, one.config.seed): Record.read(one.folder) for one in plan.members}
    comparison = Comparison(plan.config.name, plan.recipes, plan.seeds, records, metric)
    tables = {"table": comparison_table(comparison)}
    if len(plan.recipes) > 1:
        tables["differences"] = difference_table(comparison)
    texts = {f"{name}.csv": table.to_csv() for name, table in tables.items()}
    texts["table.md"] = "\n".join(table.to_markdown() for table in tables.values())
    texts["summary.json"] = json_module.dumps(comparison.to_dict(), indent=1, ensure_ascii=False) + "\n"
    for name, text in texts.items():
        write_text(plan.folder / name, text, "run the same command again")
    if "differences" not in tables:
        (plan.folder / "differences.csv").unlink(missing_ok=True)  # of an earlier comparison
    figures = comparison_figures(comparison, plan.folder / "figures")
    for table in tables.values():
        output.table(table)
    output.files("Tables", [plan.folder / name for name in sorted(texts)])
    output.files("Figures", figures)
    output.last(
        str(plan.folder / "table.md"),
        comparison.to_dict() | {"folder": str(plan.folder), "figures": [str(path) for path in figures]},
    )
