"""A client answers messages; one process can play many clients, one after another, on one copy of the model."""

import contextlib
from dataclasses import replace

import torch
from torch import Tensor, nn

from framp.client.describe import describe, train_extractor
from framp.client.static_norm import static_norms
from framp.client.training import own_classes, train
from framp.client.workspace import Workspace
from framp.data.clients import ClientData
from framp.data.samples import Samples
from framp.messages import Describe, Description, Exam, Message, Reply, Score, Task, Update
from framp.models import Architecture


class Client:
    """Answers what a server asks of clients."""

    def __init__(self, architecture: Architecture, data: ClientData, active: bool = True) -> None:
        self.workspace = Workspace(architecture, data.dataset.classes, active)
        self.data = data

    def answer(self, message: Message) -> Reply:
        """Do what a message asks for."""
        match message:
            case Task():
                return self._work(message)
            case Exam():
                return self._sit(message)
            case Describe():
                samples = self.data.training(message.client)
                vector = describe(samples, message) if message.features else torch.empty(0)
                return Description(message.client, vector, len(samples))

    def _work(self, task: Task) -> Update:
        samples = self.data.training(task.client)
        update = train(task, samples, self.workspace)
        if task.extractor is None:
            return update
        changes = train_extractor(samples, self.workspace.classes, task.extractor, task.training.batch, task.seed)
        return replace(update, extractor=changes)

    def _sit(self, exam: Exam) -> Score:
        samples, manner = self.data.testing(exam.client), exam.manner
        self.workspace.load(exam.submodel)
        model, classes = self.workspace.model, None
        if manner.own_classes and exam.client is not None:
            classes = own_classes(self.data.training(exam.client), self.workspace.classes)
        with contextlib.ExitStack() as stack:
            if manner.static_norm:
                stack.enter_context(static_norms(model, self.data.training(exam.client), manner.batch))
            correct = accuracy_count(model, samples, manner.batch, classes)
        return Score(exam.key, correct, len(samples))


@torch.no_grad()
def accuracy_count(model: nn.Module, samples: Samples, batch: int, classes: Tensor | None = None) -> int:
    """Return how many samples a model classifies rightly, in batches of a fixed size and order.

    If classes are given, the logits of the others are set to 0.
    """
    model.eval()
    dtype = next(model.parameters()).dtype
    correct = 0
    for inputs, labels in samples.in_order(batch, dtype):
        logits = model.head(model.features(inputs))  # type: ignore[operator]
        if classes is not None:
            logits = logits.masked_fill(~classes, 0.0)
        correct += int((logits.argmax(dim=1) == labels).sum())
    return correct
