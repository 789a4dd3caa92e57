"""The server's own work in a round of ResNet-18: FRAMP beside FIARSE done the way its public code does it.

FIARSE's public server copies the model for each participant, finds the threshold with torch.topk over all maskable
weights, and merges by the mean over the non-zero differences of each entry.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import Figure, interleaved
from framp import rng
from framp.budgets import Budget, assign
from framp.config import Config
from framp.data.kinds import Images
from framp.federation import build_server
from framp.messages import Description, Message, Prototypes, Task, Update
from framp.models import NamedArchitecture
from framp.server import Registry, Server, play
from framp.settings import ModelConfig
from framp.stage2_extraction.threshold import kth_magnitude
from framp.wire import Traffic

PARTICIPANTS = 10
IMAGES = Images(3, 32, 32)


def registry(config: Config, clients: int) -> Registry:
    """Return a registry of clients with random descriptors."""
    generator = rng.torch_generator(0, 0, 0, "benchmark descriptors")
    descriptions = (Description(client, torch.randn(128, generator=generator), 500) for client in range(clients))
    return Registry.enrol(config.budgets, assign(config.budgets, config.federation.shares, clients), descriptions)


def server(recipe: str = "framp", model: str = "resnet18", clients: int = 100, **values: Any) -> Server:
    """Return a server with the paper's network and hidden width, some settings ("section__key") otherwise."""
    width = 64 if model == "resnet18" else 32
    settings = {"recipe": recipe, "partition.clients": clients, "model.name": model, "model.width": width}
    config = Config().with_values(settings | {key.replace("__", "."): value for key, value in values.items()})
    return build_server(config, NamedArchitecture(config.model, IMAGES, 10), IMAGES, 10, registry(config, clients))


class Answering:
    """An engine whose clients answer in the time of one pass over the values, in the task's own memory."""

    traffic = Traffic()

    def __init__(self, prototypes: Tensor) -> None:
        counts = torch.zeros(len(prototypes), dtype=torch.int64)
        counts[:5] = 100
        self.prototypes = Prototypes(torch.zeros_like(prototypes), counts)

    def exchange(self, messages: Iterable[Message]) -> Iterator[Update]:
        """Answer each task."""
        return map(self.answer, messages)

    def answer(self, task: Message) -> Update:
        """Make an update without training."""
        assert isinstance(task, Task)
        submodel = task.submodel
        values, always = submodel.values.mul_(0.01), submodel.always.mul_(0.01)
        prototypes = self.prototypes if task.objective.uses_prototypes else None
        return Update(task.round, task.client, task.token, values, always, prototypes, 0.0)

    def close(self) -> None:
        """Nothing to let go of."""


def framp_step(server: Server) -> None:
    """Play a round in which only the server works: generate 10 full models, select, take the answers in, merge."""
    report = play(server, Answering(server.prototypes.vectors), 1)
    assert report.accepted == PARTICIPANTS, report.rejected


def maskable(model: nn.Module) -> list[Tensor]:
    """Return a model's convolution and linear parameters."""
    layers = [part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    return [parameter.data for layer in layers for parameter in layer.parameters()]


def public_fiarse_step(model: nn.Module, budgets: list[Budget]) -> None:
    """Copy, threshold with topk, and merge by counting non-zero differences, participant by participant."""
    differences = []
    for participant in range(PARTICIPANTS):
        own = copy.deepcopy(model)
        weights = torch.cat([tensor.abs().flatten() for tensor in maskable(own)])
        kept = budgets[participant % len(budgets)].limit(weights.numel())
        theta = torch.topk(weights, kept).values[-1]
        differences.append([torch.where(tensor.abs() >= theta, tensor * -0.01, 0.0) for tensor in maskable(own)])
    for place, tensor in enumerate(maskable(model)):
        total, count = torch.zeros_like(tensor), torch.zeros_like(tensor)
        for difference in differences:
            total += difference[place]
            count += difference[place] != 0
        tensor -= torch.where(count > 0, total / count, 0.0)


def selection_figure(turns: int = 15) -> Figure:
    """Measure the exact threshold beside one torch.max pass over the same memory."""
    torch.set_num_threads(1)
    model = NamedArchitecture(ModelConfig("resnet18", 64, "batch"), IMAGES, 10)()
    weights = torch.cat([tensor.flatten() for tensor in maskable(model)])
    values = weights.numpy()
    limits = {name: Budget.parse(name).limit(len(values)) for name in ("1/64", "1/16", "1/4")}
    candidates: dict[str, Callable[[], object]] = {"one pass": lambda: torch.max(weights)}
    for name, limit in limits.items():
        expected = torch.topk(weights.abs(), limit).values[-1]
        if float(kth_magnitude(values, limit)) != float(expected):
            raise AssertionError("the threshold is not that of torch.topk")
        candidates[name] = lambda limit=limit: kth_magnitude(values, limit)  # type: ignore[misc]
    seconds = interleaved(candidates, turns)
    ratios = {name: seconds[name] / seconds["one pass"] for name in limits}
    detail = ", ".join(f"{name}: {1e3 * seconds[name]:.1f} ms = {ratio:.1f}x" for name, ratio in ratios.items())
    return Figure(
        "exact threshold / one torch.max pass, 11.2 M floats",
        max(ratios.values()),
        8.0,
        f"one pass {1e3 * seconds['one pass']:.1f} ms, {detail}",
    )


def figures(turns: int = 5) -> list[Figure]:
    """Measure both servers by turns, with one thread each."""
    torch.set_num_threads(1)
    framp, blockwise = server(), server(generation__head="blocks")
    model = NamedArchitecture(ModelConfig("resnet18", 64, "batch"), IMAGES, 10)()
    budgets = list(framp.registry.budgets)
    with torch.no_grad():
        seconds = interleaved(
            {
                "framp": lambda: framp_step(framp),
                "blocks": lambda: framp_step(blockwise),
                "fiarse": lambda: public_fiarse_step(model, budgets),
            },
            turns,
        )
    groups = np.bincount([framp.registry.group[client] for client in framp.sample(1)], minlength=len(budgets))
    drawn = ", ".join(f"{count}x {budget.name}" for budget, count in zip(budgets, groups, strict=True))
    detail = f"framp {seconds['framp']:.2f} s ({drawn}), FIARSE's public way {seconds['fiarse']:.2f} s (by turns)"
    return [
        Figure("server step, framp / FIARSE's public way", seconds["framp"] / seconds["fiarse"], 1.0, detail),
        Figure(
            "server step, framp with the block-wise head / FIARSE's public way",
            seconds["blocks"] / seconds["fiarse"],
            0.3,
            f"{seconds['blocks']:.2f} s",
        ),
        selection_figure(),
    ]
