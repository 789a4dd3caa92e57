"""The program `framp`: its commands, its version, its help."""

from importlib.metadata import version
from typing import Annotated

import typer

from framp import presets
from framp.cli.compare import compare
from framp.cli.describe import config, recipes
from framp.cli.doctor import doctor
from framp.cli.partition import partition
from framp.cli.run import resume, run

EPILOG = (
    "Exit codes: 0 done; 2 bad input, with one line on stderr that says what to do; 130 interrupted (Ctrl-C), "
    "143 terminated: the state is saved and the message says how to go on; 1 an error in FRAMP itself."
)

app = typer.Typer(
    name="framp",
    help="Federated learning that gives every device its own model, of a size that the device can hold and train.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PRESETS = "\n\n".join(f"Preset {name}: {presets.purpose(name)}" for name in presets.names())
app.command(epilog=PRESETS)(run)
for command in (resume, compare, partition, recipes, config, doctor):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"framp {version('framp')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Print the help where no command is given."""
    if context.invoked_subcommand is None:
        print(context.get_help())
