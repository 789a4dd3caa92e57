"""Counts the server's own seconds, apart from those in which clients work."""

import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Runs inside `with`, and while the next item of a stream is being made."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> "Stopwatch":
        self._since = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += time.perf_counter() - self._since

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """Pass a stream on, counting the time that each item takes to make."""
        iterator = iter(items)
        while True:
            with self:
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item
            del item  # its memory is the next one's
