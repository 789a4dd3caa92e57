"""A client that holds a subgraph, against dense matrices filled in entry by entry."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from framp.budgets import Budget
from framp.client import Client
from framp.client.training import batches
from framp.data.clients import GraphClients
from framp.data.graph import Graph
from framp.data.graph_set import GraphSet
from framp.layout import ParameterLayout
from framp.messages import Describe, Exam, LocalTraining, Manner, Prototypes, Score, Submodel, Task, Update
from framp.models import GCN
from framp.stage3_objective import Aligned, CrossEntropy, Objective

MakeClients = Callable[..., GraphClients]

NODES, FEATURES, CLASSES, HIDDEN, STEPS, RATE = 16, 3, 4, 5, 4, 0.3
TRAIN = ([0, 13, 4, 9], [2, 15, 7, 6, 10])
TEST = ([1, 12], [14, 3, 11])
REST = ([5], [8])


def whole_graph() -> GraphSet:
    """A ring with chords. Nobody trains on class 3; the first client does not on class 2."""
    generator = np.random.default_rng(5)
    ring = np.stack([np.arange(NODES), (np.arange(NODES) + 1) % NODES])
    edges = np.concatenate([ring, generator.integers(NODES, size=(2, 20))], axis=1)
    features = generator.standard_normal((NODES, FEATURES)).astype(np.float32)
    labels = np.array([0, 2, 1, 1, 1, 0, 2, 0, 3, 0, 2, 1, 0, 1, 3, 1])
    return GraphSet.from_edges("ring", features, edges, labels, CLASSES)


@pytest.fixture
def data(graph_clients: MakeClients) -> GraphClients:
    return graph_clients(whole_graph(), TRAIN, TEST, REST)


def dense(client: int) -> tuple[Tensor, Tensor, list[int]]:
    """The normalised adjacency of a client's own nodes, their features, and their numbers."""
    whole = whole_graph()
    nodes = sorted([*TRAIN[client], *TEST[client], *REST[client]])
    joined = torch.eye(len(nodes), dtype=torch.float64)
    for row, node in enumerate(nodes):
        for other in whole.neighbours[whole.starts[node] : whole.starts[node + 1]].tolist():
            if other in nodes:
                joined[row, nodes.index(other)] = 1
    degrees = joined.sum(dim=1)
    return joined / torch.outer(degrees, degrees).sqrt(), torch.from_numpy(whole.features[nodes]).double(), nodes


def labels_of(nodes: list[int]) -> Tensor:
    return torch.from_numpy(whole_graph().labels)[nodes]


class Dense:
    """Three convolutions of a client's nodes, with parameters in a flat vector in the order of the layers."""

    def __init__(self, client: int, asked: list[int]) -> None:
        self.matrix, self.x, nodes = dense(client)
        self.rows = [nodes.index(node) for node in asked]

    def features(self, vector: Tensor) -> Tensor:
        (first, first_bias), (second, second_bias), _ = layers_of(vector)
        inner = (self.matrix @ self.x @ first.T + first_bias).relu()
        return (self.matrix @ (self.matrix @ inner @ second.T + second_bias).relu())[self.rows]

    def logits(self, vector: Tensor) -> Tensor:
        return head(vector, self.features(vector))


def layers_of(vector: Tensor) -> list[tuple[Tensor, Tensor]]:
    found, start = [], 0
    for inputs, outputs in ((FEATURES, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)):
        weight = vector[start : start + inputs * outputs].view(outputs, inputs)
        start += inputs * outputs
        found.append((weight, vector[start : start + outputs]))
        start += outputs
    assert start == len(vector)
    return found


def head(vector: Tensor, features: Tensor) -> Tensor:
    weight, bias = layers_of(vector)[2]
    return features @ weight.T + bias


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    chances = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    return -torch.stack([chances[row, label] for row, label in enumerate(labels.tolist())]).log().mean()


def architecture() -> nn.Module:
    return GCN(FEATURES, CLASSES, 3, HIDDEN).double()


def submodel(share: float | None = None, seed: int = 1) -> Submodel:
    generator = torch.Generator().manual_seed(seed)
    size = ParameterLayout.of(architecture()).size
    vector = 0.6 * torch.randn(size, generator=generator, dtype=torch.float64)
    if share is None:
        return Submodel(size, None, vector, vector[:0])
    indices = torch.randperm(size, generator=generator)[: int(share * size)].sort().values.int()
    return Submodel(size, indices, vector[indices], vector[:0])


def full_vector(part: Submodel) -> Tensor:
    vector = torch.zeros(part.maskable, dtype=torch.float64)
    vector[slice(None) if part.indices is None else part.indices.long()] = part.values
    return vector


def task(part: Submodel, objective: Objective, client: int = 1, prototypes: Prototypes | None = None) -> Task:
    training = LocalTraining(STEPS, 2, RATE)
    return Task(3, client, 8, Budget.parse("1"), part, objective, training, prototypes, 0)


def global_prototypes() -> Prototypes:
    """There are some of classes 0, 1 and 3."""
    vectors = torch.randn(CLASSES, HIDDEN, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return Prototypes(vectors, torch.tensor([2, 5, 0, 1]))


def misalignment(name: str, vector: Tensor, features: Tensor, labels: Tensor, prototypes: Prototypes) -> Tensor:
    if name == "head":
        return cross_entropy(head(vector, prototypes.vectors[[0, 1, 3]]), torch.tensor([0, 1, 3]))
    both = [label for label in (0, 1, 3) if label in labels.tolist()]
    gaps = [features[labels == label].mean(dim=0) - prototypes.vectors[label] for label in both]
    return torch.stack([(gap**2).sum() / HIDDEN for gap in gaps]).sum() / len(both)


@pytest.mark.parametrize("distance", [None, "head", "mse"])
@pytest.mark.parametrize("share", [None, 0.6])
@pytest.mark.parametrize("client", [0, 1])
def test_a_task_is_descent_on_all_training_nodes_at_once(
    distance: str | None, share: float | None, client: int, data: GraphClients
) -> None:
    part = submodel(share)
    objective = CrossEntropy() if distance is None else Aligned(0.7, distance)
    prototypes = None if distance is None else global_prototypes()
    update = Client(architecture, data).answer(task(part, objective, client, prototypes))
    assert isinstance(update, Update)

    network, labels = Dense(client, TRAIN[client]), labels_of(TRAIN[client])
    start = full_vector(part)
    mask = torch.zeros_like(start)
    mask[slice(None) if part.indices is None else part.indices.long()] = 1
    vector, losses = start, []
    for _ in range(STEPS):
        vector = vector.detach().requires_grad_()
        loss = cross_entropy(network.logits(vector), labels)
        if distance is not None and prototypes is not None:
            loss = loss + 0.7 * misalignment(distance, vector, network.features(vector), labels, prototypes)
        (gradient,) = torch.autograd.grad(loss, [vector])
        vector = vector - RATE * mask * gradient
        losses.append(loss.item())

    change = (vector - start).detach()
    expected = change if part.indices is None else change[part.indices.long()]
    torch.testing.assert_close(update.values, expected, atol=2e-6, rtol=0)
    assert update.values.abs().max() > 0.05
    assert update.always.numel() == 0
    assert update.loss == pytest.approx(sum(losses) / STEPS, abs=1e-6)
    assert (update.round, update.client, update.token) == (3, client, 8)
    if distance is None:
        assert update.prototypes is None
        return
    assert update.prototypes is not None
    features = network.features(vector.detach())
    assert update.prototypes.counts.tolist() == [[2, 2, 0, 0], [1, 2, 2, 0]][client]
    for label in range(CLASSES):
        own = features[labels == label]
        mean = own.mean(dim=0) if len(own) else torch.zeros(HIDDEN, dtype=torch.float64)
        torch.testing.assert_close(update.prototypes.vectors[label], mean, atol=2e-6, rtol=0)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_pruned_weights_stay_zero(share: float, data: GraphClients) -> None:
    client, part = Client(architecture, data), submodel(share)
    client.workspace.weights.fill_(5)  # left behind by another client
    client.answer(task(part, Aligned(0.7, "head"), prototypes=global_prototypes()))
    assert part.indices is not None
    outside = torch.ones(part.maskable, dtype=torch.bool)
    outside[part.indices.long()] = False
    assert not client.workspace.weights[outside].any()


def test_each_step_has_the_whole_subgraph_as_its_batch(data: GraphClients) -> None:
    samples = data.training(1)
    drawn = list(batches(task(submodel(), CrossEntropy()), samples, torch.float32))
    assert len(drawn) == STEPS
    for graph, labels in drawn:
        assert graph is samples.graphs[0]
        assert labels.tolist() == [1, 1, 0, 2, 2]


def right_answers(vector: Tensor, client: int, classes: list[int] | None = None) -> int:
    logits = Dense(client, TEST[client]).logits(vector)
    if classes is not None:
        logits[:, [label for label in range(CLASSES) if label not in classes]] = 0
    return int((logits.argmax(dim=1) == labels_of(TEST[client])).sum())


@pytest.mark.parametrize("share", [None, 0.6])
@pytest.mark.parametrize("static_norm", [False, True])
def test_an_exam_is_about_test_nodes_inside_their_own_subgraphs(
    share: float | None, static_norm: bool, data: GraphClients
) -> None:
    """A network without norms takes no notice of how they get their statistics."""
    client, scores = Client(architecture, data), set()
    for seed in range(8):
        part = submodel(share, seed)
        first, second = (right_answers(full_vector(part), number) for number in (0, 1))
        for number, right, total in ((0, first, 2), (1, second, 3), (None, first + second, 5)):
            score = client.answer(Exam(part, number, ("a",), Manner(1, static_norm=static_norm)))
            assert score == Score(("a",), right, total)
        scores.add((first, second))
    assert len(scores) > 2


def test_logits_of_classes_without_training_nodes_may_be_held_at_zero(data: GraphClients) -> None:
    client, differs = Client(architecture, data), 0
    for seed in range(8):
        part = submodel(None, seed)
        vector = full_vector(part)
        for number, classes in ((0, [0, 1]), (1, [0, 1, 2])):
            right = right_answers(vector, number, classes)
            score = client.answer(Exam(part, number, (), Manner(1, own_classes=True)))
            assert score == Score((), right, len(TEST[number]))
            differs += right != right_answers(vector, number)
        everybody = client.answer(Exam(part, None, (), Manner(1, own_classes=True)))
        assert everybody == Score((), right_answers(vector, 0) + right_answers(vector, 1), 5)
    assert differs > 0


class Normed(nn.Module):
    """A batch norm of the nodes' own features, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(FEATURES, affine=False, track_running_stats=False).double()
        self.out = nn.Linear(FEATURES, CLASSES).double()

    def features(self, graph: Graph) -> Tensor:
        features: Tensor = graph.asked(self.norm(graph.x))
        return features

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.out(features)
        return logits


def test_static_norms_are_gathered_one_subgraph_at_a_time(data: GraphClients) -> None:
    """Each subgraph is one batch: for everybody's nodes the statistics are the mean of the two clients'."""
    client = Client(Normed, data)
    own = [dense(number)[1] for number in (0, 1)]
    moments: dict[int | None, tuple[Tensor, Tensor]] = {
        number: (own[number].mean(dim=0), own[number].var(dim=0)) for number in (0, 1)
    }
    moments[None] = ((moments[0][0] + moments[1][0]) / 2, (moments[0][1] + moments[1][1]) / 2)
    features = torch.from_numpy(whole_graph().features).double()
    for seed in range(6):
        vector = torch.randn(16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        weight, bias = vector[:12].view(CLASSES, FEATURES), vector[12:]
        for number, nodes in ((0, TEST[0]), (1, TEST[1]), (None, TEST[0] + TEST[1])):
            mean, variance = moments[number]
            logits = (features[nodes] - mean) / (variance + 1e-5).sqrt() @ weight.T + bias
            right = int((logits.argmax(dim=1) == labels_of(nodes)).sum())
            exam: Any = Exam(Submodel(16, None, vector, vector[:0]), number, (), Manner(1, static_norm=True))
            assert client.answer(exam) == Score((), right, len(nodes))


def test_a_description_counts_the_training_nodes(data: GraphClients) -> None:
    client = Client(architecture, data)
    for number, count in ((0, 4), (1, 5)):
        answer: Any = client.answer(Describe(number, 3))
        assert (answer.client, answer.samples, tuple(answer.vector.shape)) == (number, count, (128,))
