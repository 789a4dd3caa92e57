"""FRAMP's server step of ResNet-18 stage by stage: time, and memory traffic at the machine's copying speed.

The traffic is what a stage cannot do without as it is written: what it has to read and write of vectors and of the head
that no cache holds until the next pass.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from benchmarks.server_step import IMAGES, framp_step, public_fiarse_step, server
from benchmarks.timing import Figure
from framp.models import NamedArchitecture
from framp.server import Server
from framp.settings import ModelConfig
from framp.stage1_generation import Generated, Hypernetwork

FLOAT = 4
BARS = {"generation": 4.0, "selection": 6.0, "merge": 8.0}


class Timed:
    """A part of the server, the seconds of whose methods are added up by stage."""

    def __init__(self, part: Any, stages: dict[str, str], seconds: dict[str, float]) -> None:
        self._part, self._stages, self._seconds = part, stages, seconds

    def __getattr__(self, name: str) -> Any:
        """Return what the part has; a method that is a stage comes with a stopwatch."""
        found = getattr(self._part, name)
        return self._watched(found, self._stages[name]) if name in self._stages else found

    def _watched(self, method: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            started = time.perf_counter()
            result = method(*arguments)
            self._seconds[stage] += time.perf_counter() - started
            return result

        return watched


def copy_speed(turns: int = 5) -> float:
    """Return the bytes a second, read and written, of copying 512 MB."""
    source, target = torch.ones(1 << 27), torch.zeros(1 << 27)
    seconds = []
    for _ in range(turns):
        started = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - started)
    return 2 * source.nbytes / median(seconds)


def traffic(framp: Server) -> dict[str, float]:
    """Return the bytes that each stage of a round moves."""
    backbone = framp.method.backbone
    assert isinstance(backbone, Generated)
    assert isinstance(backbone.network, Hypernetwork)
    vector, head = FLOAT * framp.layout.size, backbone.network.head.nbytes
    fractions = [float(framp.registry.budget(client).fraction) for client in framp.sample(1)]
    held = sum(fractions) * framp.layout.maskable
    cut = sum(fraction < 1 for fraction in fractions)
    return {
        "generation": len(fractions) * (head + 2 * vector),  # the head and b read, the model written
        "selection": 3 * cut * vector,  # the bracket's pass, the ties' and the indices'
        # the head and b read and written once where anybody holds an entry; the average follows b; changes and indices
        "merge": 2 * head + 5 * vector + 2 * FLOAT * held,
    }


def figures(turns: int = 5) -> list[Figure]:
    """Measure the stages of framp's step, and FIARSE's public way by turns with it."""
    torch.set_num_threads(1)
    framp = server()
    bytes_moved = traffic(framp)
    model = NamedArchitecture(ModelConfig("resnet18", 64, "batch"), IMAGES, 10)()
    budgets = list(framp.registry.budgets)
    now: dict[str, float] = {}
    stages = {"generate": "generation", "learn": "merge"}
    framp.method = replace(
        framp.method,
        backbone=Timed(framp.method.backbone, stages, now),
        extractor=Timed(framp.method.extractor, {"select": "selection"}, now),
    )
    found: dict[str, list[float]] = {name: [] for name in (*BARS, "everything", "FIARSE")}
    with torch.no_grad():
        for turn in range(turns + 1):
            now.update(dict.fromkeys(BARS, 0.0))
            started = time.perf_counter()
            framp_step(framp)
            middle = time.perf_counter()
            public_fiarse_step(model, budgets)
            now |= {"everything": middle - started, "FIARSE": time.perf_counter() - middle}
            for name, seconds in now.items() if turn else ():
                found[name].append(seconds)
    speed, seconds_of = copy_speed(), {name: median(values) for name, values in found.items()}
    return [
        Figure(
            f"server step, {name} / its memory traffic at copying speed",
            seconds_of[name] * speed / bytes_moved[name],
            bar,
            f"{seconds_of[name]:.2f} s = {seconds_of[name] / seconds_of['everything']:.0%} of the step, "
            f"{seconds_of[name] / seconds_of['FIARSE']:.2f} of FIARSE's public way; "
            f"{bytes_moved[name] / 1e9:.1f} GB, copying {speed / 1e9:.0f} GB/s",
        )
        for name, bar in BARS.items()
    ]
