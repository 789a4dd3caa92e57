"""Fair timing on a noisy machine: the candidates take turns, and the median of each counts."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One measured figure and the bar that it has to stay below."""

    name: str
    value: float
    bar: float
    detail: str

    @property
    def reached(self) -> bool:
        """Whether the figure stays within its bar."""
        return self.value <= self.bar


def interleaved(candidates: dict[str, Callable[[], object]], turns: int, warm_up: int = 1) -> dict[str, float]:
    """Run the candidates by turns and return the median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(warm_up + turns):
        for name, candidate in candidates.items():
            started = time.perf_counter()
            candidate()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - started)
    return {name: median(values) for name, values in seconds.items()}
