"""A whole federated round beside the same training steps as a bare PyTorch loop."""

import copy

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.timing import Figure, interleaved
from framp.config import Config
from framp.data import Dataset
from framp.federation import Federation, parts_over

SETTINGS = {
    "recipe": "fedavg",
    "model.norm": "group",
    "partition.clients": 20,
    "partition.kind": "iid",
    "training.steps": 10,
}


def dataset(samples: int = 4000, size: int = 16) -> Dataset:
    """Return random images: the work is that of real ones."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (samples, 3, size, size), dtype=np.uint8)
    labels = draw.integers(0, 10, samples)
    return Dataset.from_arrays("noise", images, labels, images[: samples // 5], labels[: samples // 5], 10)


def bare_round(federation: Federation) -> None:
    """Train as many clients, steps and samples with nothing but PyTorch."""
    config = federation.config
    model = federation.architecture()
    start = copy.deepcopy(model.state_dict())
    for client in range(config.federation.participants):
        shard = federation.data.training(client)
        ((images, labels),) = shard.in_order(len(shard))
        model.load_state_dict(start)
        model.train()
        optimiser = torch.optim.SGD(model.parameters(), lr=config.training.rate)
        for step in range(config.training.steps):
            rows = torch.arange(step * config.training.batch, (step + 1) * config.training.batch) % len(labels)
            optimiser.zero_grad()
            batch = images[rows].contiguous(memory_format=torch.channels_last)
            F.cross_entropy(model(batch), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def figures(turns: int = 9) -> list[Figure]:
    """Measure serial against bare, and processes against serial."""
    torch.set_num_threads(1)
    data = dataset()
    serial = Federation(parts_over(data, Config().with_values(SETTINGS)))
    config = Config().with_values({**SETTINGS, "engine.name": "processes", "engine.workers": 2})
    with Federation(parts_over(data, config)) as processes:
        seconds = interleaved(
            {
                "bare": lambda: bare_round(serial),
                "serial": serial.play_round,
                "processes": processes.play_round,
            },
            turns,
        )
    detail = ", ".join(f"{name} {value:.3f} s" for name, value in seconds.items())
    return [
        Figure("serial round / bare PyTorch steps", seconds["serial"] / seconds["bare"], 1.1, detail),
        Figure("round with 2 processes / serial round", seconds["processes"] / seconds["serial"], 0.6, detail),
    ]
