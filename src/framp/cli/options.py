"""Arguments that several commands share, and the configuration that they add up to."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from framp import presets
from framp.config import Config
from framp.errors import ConfigError

PRESETS_TEXT = ", ".join(presets.names())

Preset = Annotated[
    str, typer.Argument(metavar="PRESET|FILE.toml", help=f"One of {PRESETS_TEXT}, or the path of a TOML file.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change any setting, such as partition.alpha=0.1; may be repeated. `framp config` lists them all.",
    ),
]
Rounds = Annotated[int | None, typer.Option(metavar="N", help="Communication rounds.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors and one last line.")]
Engine = Annotated[
    str | None,
    typer.Option(metavar="serial|processes", help="One process, or worker processes; the results are the same."),
]
Workers = Annotated[int | None, typer.Option(metavar="N", help="Number of worker processes.")]


def configured(preset: str, settings: Sequence[str] | None, **flags: Any) -> Config:
    """Return a preset with what `--set` and the flags change; a flag's name is the key with __ for the dot."""
    values: dict[str, Any] = {}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {setting} has no value; write it as key=value, such as partition.alpha=0.1")
        values[key.strip()] = value.strip()
    values |= {name.replace("__", "."): value for name, value in flags.items() if value is not None}
    config = presets.load(preset).with_values(values)
    check_recipe(config.recipe)
    return config


def check_recipe(name: str) -> None:
    """Raise if there is no such recipe."""
    from framp.recipes import find  # imports torch, which help and version need not wait for

    find(name)
