"""Ctrl-C and SIGTERM: the first asks to stop after the round, the second ends the program at once."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPING = "stopping after this round; once more to abort at once"


class Interrupts:
    """While entered, remembers the first signal instead of dying from it.

    It announces so on stderr, unless somebody else does: a live display would be torn.
    """

    def __init__(self, announce: bool = True) -> None:
        self.received: int | None = None
        self.playing = False
        """Whether rounds are being played: before that there is nothing to finish, and one signal is enough."""
        self._announce = announce
        self._before: dict[int, Any] = {}

    @property
    def exit_code(self) -> int:
        """The code that a shell expects of a program that this signal has ended."""
        return 128 + (self.received or 0)

    def should_stop(self) -> bool:
        """Tell whether to stop at the next good moment."""
        return self.received is not None

    def on_event(self, event: dict[str, Any]) -> None:
        """Note that rounds are being played."""
        self.playing = True

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python accepts no handlers
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = self.received or number
        if again or not self.playing:
            for known in SIGNALS:
                signal.signal(known, signal.SIG_DFL)
            raise SystemExit(128 + number)
        if self._announce:
            # print() could be in the middle of another print: a signal may come at any moment.
            os.write(2, f"\n{STOPPING}\n".encode())
