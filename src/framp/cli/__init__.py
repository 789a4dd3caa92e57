"""The command line."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command that the arguments name, and exit."""
    with _ended_by_ctrl_c():
        from framp.cli import entry  # takes a while
    entry.main(arguments)


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the program at once and without a word: there is nothing to finish yet."""
    if threading.current_thread() is not threading.main_thread():  # elsewhere Python accepts no handlers
        yield
        return
    before = signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)


__all__ = ["main"]
