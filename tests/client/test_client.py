from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from framp.budgets import Budget
from framp.client import Client
from framp.client.describe import describe
from framp.client.static_norm import static_norms
from framp.client.training import train
from framp.client.workspace import Workspace
from framp.data import Dataset, Partition
from framp.data.clients import ImageClients
from framp.messages import Describe, Description, Exam, LocalTraining, Manner, Score, Submodel, Task, Update
from framp.models import SmallCNN
from framp.stage3_objective import CrossEntropy

TRAIN = (np.array([0, 5, 2, 9]), np.array([1, 3, 4, 6, 7, 8]))
TEST = (np.array([3, 1, 0]), np.array([2, 4]))


def architecture() -> nn.Module:
    return SmallCNN(1, 4, 4, "group")


@pytest.fixture
def data(toy_dataset: Dataset) -> ImageClients:
    return ImageClients(toy_dataset, Partition(TRAIN, TEST, ""))


def whole(seed: int = 0) -> Submodel:
    workspace = Workspace(architecture, 4)
    layout = workspace.layout
    vector = 0.3 * torch.randn(layout.size, generator=torch.Generator().manual_seed(seed))
    return Submodel(layout.maskable, None, vector[: layout.maskable], vector[layout.maskable :])


def test_a_task_is_answered_with_an_update(data: ImageClients) -> None:
    task = Task(1, 1, 5, Budget.parse("1"), whole(), CrossEntropy(), LocalTraining(2, 4, 0.1), None, 0)
    update = Client(architecture, data).answer(task)
    assert isinstance(update, Update)
    expected = train(task, data.training(1), Workspace(architecture, 4))
    assert torch.equal(update.values, expected.values)
    assert (update.client, update.token, update.loss) == (1, 5, expected.loss)


@pytest.mark.parametrize("client", [0, 1, None])
@pytest.mark.parametrize("batch", [1, 2, 100])
def test_an_exam_is_answered_with_a_score(data: ImageClients, client: int | None, batch: int) -> None:
    submodel = whole(3)
    score = Client(architecture, data).answer(Exam(submodel, client, ("a", "b"), Manner(batch)))
    workspace = Workspace(architecture, 4)
    submodel.fill(workspace.weights)
    images, labels = data.testing(client).batch(slice(None))
    right = int((workspace.model(images).argmax(dim=1) == labels).sum())
    assert score == Score(("a", "b"), right, {0: 3, 1: 2, None: 5}[client])


def test_an_exam_leaves_training_mode_and_keeps_no_gradient(data: ImageClients) -> None:
    client = Client(architecture, data)
    client.workspace.model.train()
    client.answer(Exam(whole(), 0, (), Manner(2)))
    assert not client.workspace.model.training
    assert not client.workspace.gradient.any()


def test_batch_statistics_depend_on_the_batches_of_the_exam(data: ImageClients, toy_dataset: Dataset) -> None:
    everything = ImageClients(toy_dataset, Partition((np.arange(120),), (np.arange(60),), ""))
    client = Client(lambda: SmallCNN(1, 4, 4), everything)
    layout = client.workspace.layout
    vector = 0.3 * torch.randn(layout.size, generator=torch.Generator().manual_seed(0))
    submodel = Submodel(layout.maskable, None, vector[: layout.maskable], vector[layout.maskable :])
    for batch in (7, 60):
        right = 0
        submodel.fill(client.workspace.weights)
        for start in range(0, 60, batch):
            images, labels = everything.testing(0).batch(slice(start, start + batch))
            right += int((client.workspace.model(images).argmax(dim=1) == labels).sum())
        assert client.answer(Exam(submodel, 0, (), Manner(batch))) == Score((), right, 60)


def test_a_description_is_the_descriptor_or_merely_a_number_of_samples(data: ImageClients) -> None:
    client = Client(architecture, data)
    answer: Any = client.answer(Describe(1, 3))
    assert isinstance(answer, Description)
    assert torch.equal(answer.vector, describe(data.training(1), Describe(1, 3)))
    assert (answer.client, answer.samples) == (1, 6)
    answer = client.answer(Describe(0, 3, features=False))
    assert isinstance(answer, Description)
    assert (answer.client, answer.samples, answer.vector.numel()) == (0, 4, 0)


def test_one_copy_of_the_model_plays_all_clients(data: ImageClients) -> None:
    built = []

    def counted() -> nn.Module:
        built.append(1)
        return architecture()

    client = Client(counted, data)
    for number in (0, 1, 0):
        client.answer(Exam(whole(number), number, (), Manner(2)))
        client.answer(Task(1, number, 0, Budget.parse("1"), whole(), CrossEntropy(), LocalTraining(1, 2, 0.1), None, 0))
    assert len(built) == 1


class Constant(nn.Module):
    """Whatever the image, class 3 is likeliest, then class 1; class 2 is below zero."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(1, 4)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(images), 1)

    def head(self, features: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(features)
        return logits


@pytest.mark.parametrize("own_classes", [False, True])
def test_logits_of_foreign_classes_may_be_held_at_zero(toy_dataset: Dataset, own_classes: bool) -> None:
    # samples 1, 2, 5 have classes 1, 2, 1; tested are classes 0, 1, 2, 3, 1
    parts = Partition((np.array([1, 2, 5]), np.array([3])), (np.array([0, 1, 2, 3, 5]), np.array([4])), "")
    client = Client(Constant, ImageClients(toy_dataset, parts))
    bias = torch.tensor([-9.0, 1.0, -1.0, 2.0])
    submodel = Submodel(8, None, torch.cat([torch.zeros(4), bias]), torch.empty(0))
    score = client.answer(Exam(submodel, 0, ("a",), Manner(2, own_classes)))
    assert score == Score(("a",), 2 if own_classes else 1, 5)  # class 1 twice, or class 3 once
    everybody = client.answer(Exam(submodel, None, ("b",), Manner(2, own_classes)))
    assert everybody == Score(("b",), 1, 6)  # nothing is held back for everybody's data


def test_an_exam_on_statistics_of_the_clients_own_training_data(toy_dataset: Dataset) -> None:
    parts = Partition((np.arange(40), np.arange(40, 120)), (np.arange(20), np.arange(20, 60)), "")
    data = ImageClients(toy_dataset, parts)
    client = Client(lambda: SmallCNN(1, 4, 4), data)
    layout = client.workspace.layout
    vector = 0.3 * torch.randn(layout.size, generator=torch.Generator().manual_seed(0))
    submodel = Submodel(layout.maskable, None, vector[: layout.maskable], vector[layout.maskable :])
    for number in (0, None):
        client.workspace.load(submodel)
        with static_norms(client.workspace.model, data.training(number), 8):
            images, labels = data.testing(number).batch(slice(None))
            right = int((client.workspace.model(images).argmax(dim=1) == labels).sum())
        score = client.answer(Exam(submodel, number, (), Manner(8, static_norm=True)))
        assert score == Score((), right, len(labels))
    again = client.answer(Exam(submodel, 0, (), Manner(8)))
    assert again == Client(lambda: SmallCNN(1, 4, 4), data).answer(Exam(submodel, 0, (), Manner(8)))
