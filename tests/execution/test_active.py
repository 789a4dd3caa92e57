"""A client that holds the active entries alone beside one that holds the whole network with zeros."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.budgets import Budget
from framp.client import Client
from framp.client.workspace import Workspace
from framp.data import Dataset, Partition
from framp.data.clients import ImageClients
from framp.errors import ModelError
from framp.execution import ActiveNetwork, active_network, kernels
from framp.execution.active import FULL_FROM
from framp.execution.layers import BatchNorm
from framp.layout import ParameterLayout
from framp.messages import Exam, LocalTraining, Manner, Prototypes, Score, Submodel, Task, Update
from framp.models import GCN, ResNet18, SmallCNN, norm
from framp.stage3_objective import Aligned, CrossEntropy, LabelMasked, Objective, ThresholdGradient

pytestmark = pytest.mark.skipif(kernels() is None, reason="no kernels were compiled: there is no compiler here")

Build = Callable[[], nn.Module]


class Odd(nn.Module):
    """A user's network: biased and strided convolutions, pooling, a flattened hidden layer, torch's own batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 5, 5, stride=2, padding=2)
        self.norm = nn.BatchNorm2d(5, track_running_stats=False)
        self.pool = nn.MaxPool2d(2)
        self.narrow = nn.Conv2d(5, 3, 2)
        self.hidden, self.output = nn.Linear(3, 6), nn.Linear(6, 4)

    def features(self, images: Tensor) -> Tensor:
        maps = torch.tanh(self.narrow(self.pool(self.norm(self.stem(images)))))
        return torch.relu(self.hidden(maps.flatten(1)))

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.output(features)
        return logits


NETWORKS: dict[str, Build] = {
    "cnn": lambda: SmallCNN(1, 4, 6),
    "cnn with group norm": lambda: SmallCNN(1, 4, 6, "group"),
    "resnet18": lambda: ResNet18(1, 4, 4),
    "odd": Odd,
}


def clients(dataset: Dataset, build: Build) -> tuple[Client, Client]:
    everything = torch.arange(60).numpy()
    data = ImageClients(dataset, Partition((everything[:25], everything[25:]), (everything[:20], everything[20:]), ""))
    return Client(build, data), Client(build, data, active=False)


def part(build: Build, share: float, seed: int = 0) -> Submodel:
    torch.manual_seed(seed)
    module = build()
    layout = ParameterLayout.of(module)
    vector = layout.flatten(module)
    count = max(int(share * layout.maskable), 1)
    indices = vector[: layout.maskable].abs().topk(count).indices.sort().values.int()
    return Submodel(layout.maskable, indices, vector[indices], vector[layout.maskable :].clone())


def task(submodel: Submodel, objective: Objective, batch: int, dtype: torch.dtype, features: int) -> Task:
    generator = torch.Generator().manual_seed(5)
    vectors = torch.randn(4, features, generator=generator, dtype=torch.float64).to(dtype)
    prototypes = Prototypes(vectors, torch.tensor([1, 2, 0, 1])) if objective.uses_prototypes else None
    training = LocalTraining(6, batch, 0.1, momentum=0.5, weight_decay=1e-3, clip=5.0)
    return Task(1, 0, 9, Budget.parse("1"), submodel, objective, training, prototypes, 3)


def answers(pair: tuple[Client, Client], asked: Task) -> list[Update]:
    found = []
    for client in pair:
        reply = client.answer(asked)
        assert isinstance(reply, Update)
        found.append(reply)
    return found


@pytest.mark.parametrize("share", [0.0001, 1 / 64, 1 / 16, 1 / 4])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("batch", [5, 16])
def test_updates_are_those_of_the_whole_network(name: str, share: float, batch: int, toy_dataset: Dataset) -> None:
    def build() -> nn.Module:
        return NETWORKS[name]().double()

    pair = clients(toy_dataset, build)
    submodel = part(build, share)
    active, dense = answers(pair, task(submodel, CrossEntropy(), batch, torch.float64, 1))
    assert isinstance(pair[0].workspace._active, ActiveNetwork)
    assert pair[0].workspace.weights.numel() == submodel.values.numel() + submodel.always.numel()
    torch.testing.assert_close(active.values, dense.values, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(active.always, dense.always, atol=1e-10, rtol=1e-10)
    assert active.loss == pytest.approx(dense.loss, abs=1e-10)


@pytest.mark.parametrize(
    "objective", [Aligned(0.5, "head"), Aligned(0.5, "mse"), ThresholdGradient(), LabelMasked()], ids=lambda o: repr(o)
)
def test_all_objectives(objective: Objective, toy_dataset: Dataset) -> None:
    def build() -> nn.Module:
        return SmallCNN(1, 4, 6).double()

    asked = task(part(build, 1 / 8), objective, 8, torch.float64, 24)
    active, dense = answers(clients(toy_dataset, build), asked)
    torch.testing.assert_close(active.values, dense.values, atol=1e-10, rtol=1e-10)
    if dense.prototypes is not None:
        assert active.prototypes is not None
        torch.testing.assert_close(active.prototypes.vectors, dense.prototypes.vectors, atol=1e-10, rtol=1e-10)


def test_single_precision_stays_close(toy_dataset: Dataset) -> None:
    build = NETWORKS["cnn"]
    active, dense = answers(clients(toy_dataset, build), task(part(build, 1 / 8), CrossEntropy(), 16, torch.float32, 1))
    assert float((active.values - dense.values).norm() / dense.values.norm()) < 1e-4


@pytest.mark.parametrize("manner", [Manner(7), Manner(16, static_norm=True), Manner(16, own_classes=True)])
def test_exams_have_the_same_score(manner: Manner, toy_dataset: Dataset) -> None:
    def build() -> nn.Module:
        return SmallCNN(1, 4, 6).double()

    pair = clients(toy_dataset, build)
    for client in (0, 1, None):
        scores: list[Any] = [one.answer(Exam(part(build, 1 / 4), client, ("x",), manner)) for one in pair]
        assert isinstance(scores[0], Score)
        assert scores[0] == scores[1]


def test_one_client_after_another_leaves_nothing_behind(toy_dataset: Dataset) -> None:
    """Small, full, smaller, small again: the last as the first."""
    build = NETWORKS["cnn"]
    client, _ = clients(toy_dataset, build)
    small, smaller = part(build, 1 / 8), part(build, 1 / 64, 1)
    full = Submodel(small.maskable, None, torch.randn(small.maskable), small.always)
    found = [client.answer(task(one, CrossEntropy(), 16, torch.float32, 1)) for one in (small, full, smaller, small)]
    first, last = found[0], found[-1]
    assert isinstance(first, Update)
    assert isinstance(last, Update)
    assert torch.equal(first.values, last.values)
    assert torch.equal(first.always, last.always)


def test_many_active_entries_are_computed_whole(toy_dataset: Dataset) -> None:
    build = NETWORKS["cnn"]
    client, _ = clients(toy_dataset, build)
    for share, compact in ((FULL_FROM - 0.01, True), (FULL_FROM + 0.01, False)):
        submodel = part(build, share)
        client.answer(task(submodel, CrossEntropy(), 16, torch.float32, 1))
        expected = submodel.values.numel() if compact else submodel.maskable
        assert client.workspace.weights.numel() == expected + submodel.always.numel()


class Shared(SmallCNN):
    """Two convolutions with one weight."""

    def __init__(self) -> None:
        super().__init__(1, 4, 4)
        self.twin = nn.Conv2d(4, 4, 3)
        self.other = nn.Conv2d(4, 4, 3)
        self.other.weight = self.twin.weight


@pytest.mark.parametrize(
    "build",
    [
        lambda: GCN(3, 2),
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)),
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, dilation=2)),
        lambda: nn.Sequential(nn.Conv2d(4, 4, (3, 1))),
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding_mode="circular", padding=1)),
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3), nn.Embedding(3, 3)),
        Shared,
    ],
)
def test_what_the_kernels_do_not_know_is_computed_whole(build: Build) -> None:
    module = build()
    assert active_network(module, ParameterLayout.of(module)) is None


class Plain(nn.Module):
    """A user's network that others differ from."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6, track_running_stats=False)
        self.second, self.output = nn.Conv2d(6, 8, 3, padding=1, stride=2), nn.Linear(8, 4)

    def features(self, images: Tensor) -> Tensor:
        maps = torch.relu(self.norm(self.first(images)))
        return torch.relu(self.second(maps)).mean((2, 3))

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.output(features)
        return logits


class Reading(Plain):
    """Reads its layers' weights and sizes."""

    def features(self, images: Tensor) -> Tensor:
        maps = F.conv2d(images, self.first.weight, self.first.bias, self.first.stride, self.first.padding)
        return torch.relu(self.second(maps)).view(len(images), self.second.out_channels, -1).mean(2)

    def head(self, features: Tensor) -> Tensor:
        return F.linear(features, F.normalize(self.output.weight))


class Listing(Plain):
    """Refers to its layers by a plain list too."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = [self.first, self.norm, nn.MaxPool2d(2), self.second]

    def features(self, images: Tensor) -> Tensor:
        for step in self.steps:
            images = step(images)
        return images.mean((2, 3))


class Frozen(Plain):
    """Does not learn some of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        for parameter in (self.first.weight, self.norm.weight, self.output.weight, self.output.bias):
            parameter.requires_grad_(False)


class Doubling(nn.BatchNorm2d):
    """A norm of the user's own."""

    def forward(self, maps: Tensor) -> Tensor:
        return 2 * super().forward(maps) + 1


class OwnNorm(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.norm = Doubling(6, track_running_stats=False)


class Flat(Plain):
    """Pools something of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)

    def features(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.pool(self.second(self.norm(self.first(images))).flatten(2))
        return pooled.mean(2).repeat_interleave(2, dim=1)


@pytest.mark.parametrize("kind", [Plain, Reading, Listing, Frozen, OwnNorm, Flat])
def test_networks_that_do_unusual_things(kind: Build, toy_dataset: Dataset) -> None:
    def build() -> nn.Module:
        return kind().double()

    pair = clients(toy_dataset, build)
    active, dense = answers(pair, task(part(build, 1 / 5), CrossEntropy(), 8, torch.float64, 1))
    assert isinstance(pair[0].workspace._active, ActiveNetwork)
    torch.testing.assert_close(active.values, dense.values, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(active.always, dense.always, atol=1e-10, rtol=1e-10)


def test_networks_with_hooks_or_that_cannot_be_copied_are_computed_whole() -> None:
    hooked, locked = Plain(), Plain()
    hooked.first.register_forward_hook(lambda layer, inputs, output: 3 * output)
    locked.lock = threading.Lock()  # type: ignore[assignment]
    for module in (hooked, locked):
        assert active_network(module, ParameterLayout.of(module)) is None


@pytest.mark.parametrize(
    "images", [torch.zeros(4, 2, 8, 8), torch.zeros(4, 1, 8, 8, dtype=torch.float64), torch.zeros(1, 8, 8)]
)
def test_maps_that_do_not_fit_a_layer_never_reach_the_kernels(images: Tensor) -> None:
    workspace = Workspace(Plain, 4)
    workspace.load(part(Plain, 1 / 5))
    with pytest.raises(ModelError, match="reach a layer of 1 channels"):
        workspace.model.features(images)  # type: ignore[operator]
    with pytest.raises(ModelError, match="reach a layer of 6 channels"):
        workspace.model.norm(torch.zeros(4, 7, 8, 8))  # type: ignore[operator]


@pytest.mark.parametrize("indices", [[3, 2], [2, 2], [-1, 5], [0, 10**6]])
def test_indices_out_of_order_or_of_bounds_never_reach_the_kernels(indices: list[int]) -> None:
    whole = part(Plain, 1 / 5)
    submodel = Submodel(whole.maskable, torch.tensor(indices, dtype=torch.int32), whole.values[:2], whole.always)
    with pytest.raises(ModelError, match="ascending"):
        Workspace(Plain, 4).load(submodel)


def test_a_submodel_with_too_few_values_never_reaches_the_kernels() -> None:
    whole = part(Plain, 1 / 5)
    with pytest.raises(ModelError, match="values; send one for each"):
        Workspace(Plain, 4).load(Submodel(whole.maskable, whole.indices, whole.values[:-1], whole.always))


def test_static_norms_pass_over_a_single_value() -> None:
    """As the network's own norm does: a batch of one sample, and maps of one pixel."""
    found = kernels()
    assert found is not None
    own = norm.BatchNorm(3)
    other = BatchNorm(own, found)
    for layer in (own, other):
        layer.running_mean, layer.running_var = torch.zeros(3), torch.ones(3)
        layer.num_batches_tracked, layer.track_running_stats, layer.momentum = torch.zeros(()), True, None
        layer.train()
    maps = torch.randn(1, 3, 1, 1)
    assert torch.equal(own(maps), other(maps))
    assert torch.equal(other.running_mean, torch.zeros(3))  # type: ignore[arg-type]


def test_switched_off() -> None:
    assert Workspace(NETWORKS["cnn"], 4, active=False)._active is None
    assert Workspace(NETWORKS["cnn"], 4)._active is not None
