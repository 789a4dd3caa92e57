"""A client answers messages; one process can play many clients, one after another, on one copy of the model."""

import contextlib
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from framp.client.describe import describe, train_extractor
from framp.client.static_norm import static_norms
from framp.client.training import own_classes, train
from framp.client.workspace import Workspace
from framp.data import Dataset, Partition, Shard
from framp.messages import Describe, Description, Exam, Message, Reply, Score, Task, Update
from framp.models import Architecture


@dataclass(frozen=True)
class ClientData:
    """Where clients find their samples: the set, by memory map, and who holds what."""

    dataset: Dataset
    partition: Partition

    def training(self, client: int | None) -> Shard:
        """Return a client's training samples; those of all clients, in their order, for None."""
        if client is not None:
            return Shard.of(self.dataset, "train", self.partition.train[client])
        return Shard.of(self.dataset, "train", np.concatenate(self.partition.train))

    def testing(self, client: int | None) -> Shard:
        """Return a client's test samples; those of all clients, in their order, for None."""
        if client is not None:
            return Shard.of(self.dataset, "test", self.partition.test[client])
        return Shard.of(self.dataset, "test", np.concatenate(self.partition.test))


class Client:
    """Answers what a server asks of clients."""

    def __init__(self, architecture: Architecture, data: ClientData) -> None:
        self.workspace = Workspace(architecture, data.dataset.classes)
        self.data = data

    def answer(self, message: Message) -> Reply:
        """Do what a message asks for."""
        match message:
            case Task():
                return self._work(message)
            case Exam():
                return self._sit(message)
            case Describe():
                shard = self.data.training(message.client)
                vector = describe(shard, message) if message.features else torch.empty(0)
                return Description(message.client, vector, len(shard))

    def _work(self, task: Task) -> Update:
        shard = self.data.training(task.client)
        update = train(task, shard, self.workspace)
        if task.extractor is None:
            return update
        changes = train_extractor(shard, self.workspace.classes, task.extractor, task.training.batch, task.seed)
        return replace(update, extractor=changes)

    def _sit(self, exam: Exam) -> Score:
        shard, manner = self.data.testing(exam.client), exam.manner
        self.workspace.load(exam.submodel)
        model, classes = self.workspace.model, None
        if manner.own_classes and exam.client is not None:
            classes = own_classes(self.data.training(exam.client), self.workspace.classes)
        with contextlib.ExitStack() as stack:
            if manner.static_norm:
                stack.enter_context(static_norms(model, self.data.training(exam.client), manner.batch))
            correct = accuracy_count(model, shard, manner.batch, classes)
        return Score(exam.key, correct, len(shard))


@torch.no_grad()
def accuracy_count(model: nn.Module, shard: Shard, batch: int, classes: Tensor | None = None) -> int:
    """Return how many samples a model classifies rightly, in batches of a fixed size and order.

    If classes are given, the logits of the others are set to 0.
    """
    model.eval()
    dtype = next(model.parameters()).dtype
    correct = 0
    for start in range(0, len(shard), batch):
        images, labels = shard.batch(slice(start, start + batch), dtype)
        logits = model.head(model.features(images))  # type: ignore[operator]
        if classes is not None:
            logits = logits.masked_fill(~classes, 0.0)
        correct += int((logits.argmax(dim=1) == labels).sum())
    return correct
