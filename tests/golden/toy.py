"""The toy problem that the federation and the transcription both work on, and the network as a module."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from framp.client.training import batches
from framp.config import Config
from framp.data import Dataset, Shard
from framp.federation import Federation, parts_over
from framp.messages import Message, Reply, Task, Update
from framp.wire import Traffic

from .client import Samples
from .methods import METHODS, Method, Participant, Start, Transcription
from .scalars import Toy, Vector
from .servers import Matrix

WIDTHS = (3, 4)
WIDTHS_WITH_EXITS = (3, 4, 8)
CHANNELS, CLASSES, SIDE = 2, 4, 2
CONFIG: dict[str, Any] = {
    "rounds": 4,
    "seed": 17,
    "partition.clients": 8,
    "partition.alpha": 0.3,
    "federation.budgets": ["0.3", "0.5", "0.8", "1"],
    "federation.shares": [0.25, 0.25, 0.25, 0.25],
    "federation.participants": 4,
    "training.steps": 2,
    "training.batch": 4,
    "generation.hidden": 3,
    "generation.refresh_every": 2,
}


class ToyNetwork(nn.Module):
    """The network of `scalars`, made of torch's layers."""

    def __init__(self, widths: tuple[int, ...], gain: bool) -> None:
        super().__init__()
        inputs = (CHANNELS, *widths[:-1])
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(before, width, 1), nn.ReLU()) for before, width in zip(inputs, widths, strict=True)
        )
        self.classifier = nn.Linear(widths[-1], CLASSES)
        self.gain = nn.Parameter(torch.linspace(0.75, 1.5, widths[-1])) if gain else None
        self.unit_widths = widths

    def units(self) -> list[nn.Module]:
        return list(self.stages)

    def pooled(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))

    def features(self, images: Tensor) -> Tensor:
        maps = images
        for unit in self.stages:
            maps = unit(maps)
        pooled = self.pooled(maps)
        return pooled if self.gain is None else pooled * self.gain

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


@dataclass(frozen=True)
class Rounded:
    """Builds a network in some precision, its weights multiples of 1/32: some of them are equally large."""

    architecture: Callable[[], nn.Module]
    dtype: torch.dtype

    def __call__(self) -> nn.Module:
        network = self.architecture().to(self.dtype)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_((parameter * 32).round() / 32)
        return network


def dataset() -> Dataset:
    """Noisy 2×2 images of four classes, six training images a client."""
    generator = np.random.default_rng(3)
    parts = []
    for count in (48, 16):
        labels = np.arange(count) % CLASSES
        images = generator.integers(0, 160, size=(count, CHANNELS, SIDE, SIDE))
        for image, label in zip(images, labels, strict=True):
            image[label % 2, label // 2] += 90
        parts.append((images.astype(np.uint8), labels))
    return Dataset.from_arrays("toy", *parts[0], *parts[1], classes=CLASSES)


@dataclass
class Watching:
    """An engine that keeps the tasks and updates which it carries."""

    federation: Federation
    tasks: dict[int, Task]
    updates: dict[int, Update]
    traffic = Traffic()

    def exchange(self, messages: Any) -> Any:
        def seen(message: Message) -> Message:
            if isinstance(message, Task):
                self.tasks[message.client] = message
            return message

        def kept(reply: Reply) -> Reply:
            if isinstance(reply, Update):
                self.updates[reply.client] = reply
            return reply

        return map(kept, self.federation.engine.exchange(map(seen, messages)))

    def close(self) -> None:
        """Nothing of its own to let go of."""


class Pair:
    """A federation, and the transcription of its method, which starts from the federation's own start."""

    def __init__(self, recipe: str, values: dict[str, Any], dtype: torch.dtype, method: Method | None = None) -> None:
        self.config = Config().with_values(CONFIG | {"recipe": recipe} | values)
        self.method = method or METHODS[recipe]
        widths = WIDTHS_WITH_EXITS if self.method.exits else WIDTHS
        self.toy = Toy(CHANNELS, widths, CLASSES, self.method.exits)
        parts = parts_over(dataset(), self.config, partial(ToyNetwork, widths, not self.method.exits))
        self.federation = Federation(replace(parts, architecture=Rounded(parts.architecture, dtype)))
        self.dtype = dtype
        state = {name: numbers(tensor) for name, tensor in self.federation.server.state().items()}
        start = Start(state, *self.descriptors())
        self.transcription = Transcription(self.method, self.toy, self.config, start)

    def descriptors(self) -> tuple[Matrix, Vector]:
        """The clients' descriptors as they are now, and the average client's."""
        found = self.federation.server.method.descriptors
        if found is None:
            return [], []
        return [numbers(found.of(client)) for client in range(self.config.partition.clients)], numbers(found.mean())

    def budget(self, client: int) -> Fraction:
        return self.federation.server.registry.budget(client).fraction

    def participants(self, tasks: dict[int, Task]) -> list[Participant]:
        """What the transcription is told of those who take part: their budgets and samples."""
        return [
            Participant(
                client,
                self.budget(client),
                [samples(*batch) for batch in batches(task, self.shard(client), self.dtype)],
                samples(*self.shard(client).batch(slice(None), self.dtype)),
            )
            for client, task in sorted(tasks.items())
        ]

    def shard(self, client: int) -> Shard:
        shard = self.federation.data.training(client)
        assert isinstance(shard, Shard)
        return shard


def samples(images: Tensor, labels: Tensor) -> Samples:
    """Images as lists [sample][channel][pixel], and labels."""
    return [[[float(v) for v in channel.reshape(-1)] for channel in image] for image in images], labels.tolist()


def numbers(tensor: Tensor) -> Vector:
    """A tensor as a flat list of floats."""
    return [float(value) for value in tensor.reshape(-1).tolist()]
