"""A training step of ResNet-18 that holds active entries alone, beside one of the whole network with zeros."""

import time
from statistics import median

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarks.timing import Figure, interleaved
from framp.config import Config
from framp.data.kinds import Images
from framp.engines.allocator import keep_freed_memory
from framp.execution import active_network, kernels
from framp.federation import Federation, parts_over
from framp.layout import ParameterLayout
from framp.models import ResNet18
from framp.work import work_of

BATCH, TRAINED = 32, 20
GLOBAL = {"1/64": 0.18, "1/16": 0.35, "1/4": 0.55}
BY_LAYER = {"1/64": 0.065, "1/16": 0.14, "1/4": 0.33}


class Steps:
    """One network held whole and one held by its active entries, on the same batch."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(BATCH, 3, 32, 32, generator=generator)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 10, (BATCH,), generator=generator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model, whole = ResNet18(3, 10), ResNet18(3, 10)
        self.layout = ParameterLayout.of(self.model)
        self.work = work_of(ResNet18(3, 10), self.layout, Images(3, 32, 32))
        found = active_network(whole, self.layout)
        assert found is not None, "no kernels were compiled"
        self.active = found
        self.vector = self.layout.flatten(self.model)
        self.gradient = torch.zeros_like(self.vector)
        self.layout.bind(self.model, self.vector, self.gradient)
        ones = torch.ones_like(self.vector)
        for _ in range(TRAINED):
            self.whole_step(ones)
        self.trained = self.vector.clone()

    def whole_step(self, mask: Tensor) -> None:
        """Train the whole network for a step, by the mask."""
        self.gradient.zero_()
        F.cross_entropy(self.model(self.images), self.labels).backward()  # type: ignore[no-untyped-call]
        self.vector.addcmul_(self.gradient, mask, value=-0.1)

    def largest(self, fraction: float, by_layer: bool) -> Tensor:
        """Return the entries of largest magnitude, of all or of each layer."""
        maskable = self.trained[: self.layout.maskable].abs()
        if not by_layer:
            return maskable.topk(int(fraction * len(maskable))).indices.sort().values.int()
        entries = [entry for entry in self.layout.entries if entry.stop <= self.layout.maskable]
        found = []
        for entry in entries:
            own = maskable[entry.start : entry.stop]
            found.append(own.topk(max(1, int(fraction * len(own)))).indices.sort().values + entry.start)
        return torch.cat(found).int()

    def figure(self, budget: str, bar: float, by_layer: bool, turns: int) -> Figure:
        """Measure a step of both."""
        indices = self.largest(1 / int(budget.split("/")[1]), by_layer)
        mask = torch.zeros_like(self.vector)
        mask[indices.long()] = 1
        mask[self.layout.maskable :] = 1
        self.vector.copy_(self.trained * mask)
        values = torch.cat([self.vector[indices.long()], self.vector[self.layout.maskable :]])
        gradient = torch.zeros_like(values)
        started = time.perf_counter()
        self.active.hold(indices, values, gradient)
        set_up = time.perf_counter() - started

        def step() -> None:
            gradient.zero_()
            F.cross_entropy(self.active.module(self.images), self.labels).backward()  # type: ignore[no-untyped-call]
            values.add_(gradient, alpha=-0.1)

        seconds = interleaved({"active": step, "whole": lambda: self.whole_step(mask)}, turns)
        detail = (
            f"{1e3 * seconds['active']:.0f} of {1e3 * seconds['whole']:.0f} ms; multiply-adds kept "
            f"{self.work.share(indices):.3f}; set-up {1e3 * set_up:.0f} ms"
        )
        rule = "TopK by layer" if by_layer else "global TopK"
        return Figure(f"step of ResNet-18, {rule} {budget}", seconds["active"] / seconds["whole"], bar, detail)


def rounds(turns: int) -> Figure:
    """Measure a serial round of four budgets in equal shares, of a small network."""
    from benchmarks.rounds import dataset

    settings = {
        "recipe": "fiarse",
        "model.norm": "batch",
        "partition.clients": 20,
        "partition.kind": "iid",
        "federation.participants": 20,
    }
    made = {
        execution: Federation(
            parts_over(dataset(), Config().with_values({**settings, "training.execution": execution}))
        )
        for execution in ("active", "dense")
    }
    seconds = interleaved({name: federation.play_round for name, federation in made.items()}, turns)
    detail = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    return Figure("round of four budgets, active / whole", seconds["active"] / seconds["dense"], 0.6, detail)


def figures(turns: int = 7) -> list[Figure]:
    """Measure steps at three budgets by two rules, and a whole round."""
    torch.set_num_threads(1)
    keep_freed_memory()
    if kernels() is None:
        return []
    steps = Steps()
    made = [steps.figure(budget, bar, False, turns) for budget, bar in GLOBAL.items()]
    made += [steps.figure(budget, bar, True, turns) for budget, bar in BY_LAYER.items()]
    set_ups = [float(figure.detail.split("set-up ")[1].split(" ")[0]) for figure in made]
    made.append(Figure("set-up of a task, ms, median over these", median(set_ups), 60, f"longest {max(set_ups):.0f}"))
    return [*made, rounds(turns)]
