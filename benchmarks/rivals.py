"""A round of each rival beside a round of fedavg, and what cutting channels saves.

The physical limit of the saving is what PyTorch alone needs for networks of the clients' widths: narrow convolutions
save less time than parameters.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from benchmarks.rounds import SETTINGS, dataset
from benchmarks.timing import Figure, interleaved
from framp.config import Config
from framp.federation import Federation, parts_over

RIVALS = ("fiarse", "heterofl", "fedrolex", "scalefl")
SLICED = ("heterofl", "fedrolex")
FOUR = {"federation.budgets": ["1/64", "1/16", "1/4", "1"], "federation.shares": [0.25] * 4}
ONE = {"federation.budgets": ["1"], "federation.shares": [1.0]}


def federation(recipe: str, values: dict[str, Any]) -> Federation:
    """Return a federation of twenty clients, all of whom take part, so that every budget counts alike."""
    settings = {**SETTINGS, "recipe": recipe, "federation.participants": 20, "model.norm": "batch"}
    return Federation(parts_over(dataset(), Config().with_values({**settings, **values})))


def bare_round(networks: list[nn.Module], sliced: Federation) -> None:
    """Train networks of the clients' own sizes, as many steps and samples, with nothing but PyTorch."""
    config = sliced.config
    images = torch.randn(config.training.batch, 3, 16, 16)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.arange(config.training.batch) % sliced.data.dataset.classes
    for model in networks:
        optimiser = torch.optim.SGD(model.parameters(), lr=config.training.rate)
        for _ in range(config.training.steps):
            optimiser.zero_grad()
            F.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def figures(turns: int = 5) -> list[Figure]:
    """Measure all methods with everybody holding the full model, then the sliced ones with four budgets."""
    torch.set_num_threads(1)
    fedavg = federation("fedavg", ONE)
    full = {recipe: federation(recipe, ONE) for recipe in RIVALS}
    seconds = interleaved({"fedavg": fedavg.play_round, **{name: f.play_round for name, f in full.items()}}, turns)
    found = [
        Figure(
            f"round of {recipe} / of fedavg, everybody holds the full model",
            seconds[recipe] / seconds["fedavg"],
            1.1,
            f"{seconds[recipe]:.3f} s, {seconds['fedavg']:.3f} s",
        )
        for recipe in RIVALS
    ]
    four = {recipe: federation(recipe, FOUR) for recipe in SLICED}
    sizes = [four["heterofl"].personal_model(client).train() for client in range(20)]
    seconds = interleaved(
        {
            "fedavg": fedavg.play_round,
            "bare": lambda: bare_round(sizes, four["heterofl"]),
            **{name: f.play_round for name, f in four.items()},
        },
        turns,
    )
    limit = seconds["bare"] / seconds["fedavg"]
    found += [
        Figure(
            f"round of {recipe} with four budgets / of fedavg, beside 1.2 x bare PyTorch",
            seconds[recipe] / seconds["fedavg"],
            round(1.2 * limit, 2),
            f"{seconds[recipe]:.3f} s, fedavg {seconds['fedavg']:.3f} s, bare {seconds['bare']:.3f} s = {limit:.2f}",
        )
        for recipe in SLICED
    ]
    return found
