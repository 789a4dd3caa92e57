import time
from collections.abc import Iterator

import pytest

from framp.server.stopwatch import Stopwatch


def test_only_the_seconds_inside_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    watch = Stopwatch()

    def items() -> Iterator[str]:
        for item in "ab":
            clock[0] += 3
            yield item
        clock[0] += 5

    found = []
    for item in watch.over(items()):
        clock[0] += 100  # somebody else's work
        found.append(item)
    assert found == ["a", "b"]
    assert watch.seconds == 3 + 3 + 5
    with watch:
        clock[0] += 2
    clock[0] += 50
    assert watch.seconds == 13


def test_an_error_inside_is_counted_and_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    watch = Stopwatch()

    def fail() -> None:
        with watch:
            clock[0] += 4
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert watch.seconds == 4
