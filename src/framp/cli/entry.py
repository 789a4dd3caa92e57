"""Where a command starts, and where its errors end: one line on stderr and an exit code."""

import errno
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from framp.cli.app import app
from framp.errors import FrampError

BAD_INPUT, INTERRUPTED = 2, 130
#: What the machine refuses and the user can mend.
REFUSALS = {
    errno.ENOSPC: "free some space or choose another folder",
    errno.EDQUOT: "free some space or choose another folder",
    errno.EFBIG: "raise the limit on file sizes or choose another folder",
    errno.EACCES: "change its permissions or choose another folder",
    errno.EPERM: "change its permissions or choose another folder",
    errno.EROFS: "choose a folder on a disk that can be written",
    errno.ENOTDIR: "choose another folder",
    errno.EEXIST: "choose another folder",
    errno.EISDIR: "choose another path",
    errno.ENAMETOOLONG: "choose a shorter path",
}
#: The common ancestor of what typer raises for arguments that it cannot read.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command that the arguments name, and exit."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal can write α
    command = typer.main.get_command(app)
    try:
        code = command.main(
            args=None if arguments is None else list(arguments), prog_name="framp", standalone_mode=False
        )
    except FrampError as error:
        fail(str(error))
    except UsageError as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "framp"
        message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        fail(f"{message} (see `{path} --help`)")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{os.strerror(error.errno).lower()}; {REFUSALS[error.errno]}")
    sys.exit(code if isinstance(code, int) else 0)


def fail(message: str) -> NoReturn:
    """Print one line and exit with the code of bad input."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(BAD_INPUT)
