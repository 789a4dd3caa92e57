"""A client answers messages; one process can play many clients, one after another, on one copy of the model."""

from dataclasses import dataclass

import numpy as np
import torch

from framp.client.describe import describe
from framp.client.training import train
from framp.client.workspace import Workspace
from framp.data import Dataset, Partition, Shard
from framp.messages import Describe, Description, Exam, Message, Reply, Score, Submodel, Task
from framp.models import Architecture


@dataclass(frozen=True)
class ClientData:
    """Where clients find their samples: the set, by memory map, and who holds what."""

    dataset: Dataset
    partition: Partition

    def training(self, client: int) -> Shard:
        """Return a client's training samples."""
        return Shard.of(self.dataset, "train", self.partition.train[client])

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
                return train(message, self.data.training(message.client), self.workspace)
            case Exam():
                return self._sit(message)
            case Describe():
                shard = self.data.training(message.client)
                vector = describe(shard, message.seed) if message.features else torch.empty(0)
                return Description(message.client, vector, len(shard))

    def _sit(self, exam: Exam) -> Score:
        shard = self.data.testing(exam.client)
        correct = accuracy_count(self.workspace, exam.submodel, shard, exam.batch)
        return Score(exam.key, correct, len(shard))


@torch.no_grad()
def accuracy_count(workspace: Workspace, submodel: Submodel, shard: Shard, batch: int) -> int:
    """Return how many samples a submodel classifies rightly, in batches of a fixed size and order."""
    workspace.load(submodel)
    workspace.model.eval()
    correct = 0
    for start in range(0, len(shard), batch):
        images, labels = shard.batch(slice(start, start + batch), workspace.layout.dtype)
        logits = workspace.model.head(workspace.model.features(images))  # type: ignore[operator]
        correct += int((logits.argmax(dim=1) == labels).sum())
    return correct
