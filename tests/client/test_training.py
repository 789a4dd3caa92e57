from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from framp import rng
from framp.budgets import Budget
from framp.client.training import batches, local_prototypes, train
from framp.client.workspace import Workspace
from framp.data import Shard, augment
from framp.layout import ParameterLayout
from framp.messages import LocalTraining, Prototypes, Submodel, Task, Update
from framp.models import SmallCNN
from framp.stage3_objective import Aligned, CrossEntropy, Known, Objective, ThresholdGradient

CLASSES = 3


def double() -> nn.Module:
    return SmallCNN(1, CLASSES, 4, "group").double()


class Dropping(SmallCNN):
    """A network that samples in its forward pass."""

    def __init__(self) -> None:
        super().__init__(1, CLASSES, 4, "group")

    def features(self, images: Tensor) -> Tensor:
        return F.dropout(super().features(images), 0.5, self.training)


def shard(samples: int = 21, seed: int = 0) -> Shard:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (samples, 1, 8, 8), generator=generator, dtype=torch.uint8)
    labels = torch.arange(samples) % (CLASSES - 1)  # nobody holds the last class
    return Shard(images, labels, torch.full((1, 1, 1), 0.5), torch.full((1, 1, 1), 0.25))


def submodel(workspace: Workspace, share: float | None, seed: int = 1) -> Submodel:
    generator = torch.Generator().manual_seed(seed)
    layout = workspace.layout
    vector = 0.3 * torch.randn(layout.size, generator=generator, dtype=layout.dtype)
    if share is None:
        return Submodel(layout.maskable, None, vector[: layout.maskable], vector[layout.maskable :])
    order = torch.randperm(layout.maskable, generator=generator)
    indices = order[: int(share * layout.maskable)].sort().values.int()
    return Submodel(layout.maskable, indices, vector[indices], vector[layout.maskable :])


def task(part: Submodel, objective: Objective | None = None, **changes: Any) -> Task:
    training = LocalTraining(
        changes.pop("steps", 5), changes.pop("batch", 8), changes.pop("rate", 0.1), changes.pop("augment", False)
    )
    values: dict[str, Any] = {
        "round": 2,
        "client": 4,
        "token": 99,
        "budget": Budget.parse("1"),
        "submodel": part,
        "objective": objective or CrossEntropy(),
        "training": training,
        "prototypes": None,
        "seed": 7,
    }
    return Task(**(values | changes))


def flat(part: Submodel) -> Tensor:
    vector = torch.empty(part.maskable + part.always.numel(), dtype=part.values.dtype)
    part.fill(vector)
    return vector


def prototypes(width: int = 16) -> Prototypes:
    generator = torch.Generator().manual_seed(3)
    vectors = torch.randn(CLASSES, width, generator=generator, dtype=torch.float64)
    return Prototypes(vectors, torch.tensor([2, 0, 1]))


OBJECTIVES: list[Objective] = [CrossEntropy(), Aligned(0.7, "squared"), Aligned(0.7, "head")]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("share", [None, 0.25])
@pytest.mark.parametrize("augmented", [False, True])
def test_training_is_a_bare_loop_of_descent_on_masked_weights(
    objective: Objective, share: float | None, augmented: bool
) -> None:
    workspace, samples = Workspace(double, CLASSES), shard()
    part = submodel(workspace, share)
    asked = task(part, objective, prototypes=prototypes(), augment=augmented)
    update = train(asked, samples, workspace)

    model = double()
    layout = ParameterLayout.of(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(layout.views(flat(part))[name])
    mask = torch.ones(layout.size, dtype=torch.float64)
    if part.indices is not None:
        mask[: layout.maskable] = 0
        mask[part.indices.long()] = 1
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    order = rng.stream(7, 2, 4, "batches")
    noise = rng.stream(7, 2, 4, "augmentation")
    rows = [first for _ in range(2) for first in np.array_split(order.permutation(21), [8, 16])]
    losses = []
    known = Known(prototypes(), torch.tensor([True, True, False]))
    for step in range(5):
        images = (samples.images[rows[step]].double() / 255 - 0.5) / 0.25
        if augmented:
            images = augment(images, noise)
        loss = objective.loss(model, images, samples.labels[rows[step]], known)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            parameter.grad *= layout.views(mask)[name]
        optimiser.step()
        losses.append(loss.item())

    change = layout.flatten(model) - flat(part)
    expected = change[: layout.maskable] if part.indices is None else change[part.indices.long()]
    torch.testing.assert_close(update.values, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(update.always, change[layout.maskable :], atol=1e-12, rtol=0)
    assert update.loss == pytest.approx(sum(losses) / 5, abs=1e-12)
    assert (update.round, update.client, update.token) == (2, 4, 99)
    assert update.values.abs().max() > 1e-3


@pytest.mark.parametrize("objective", [CrossEntropy(), Aligned(0.2, "head"), ThresholdGradient()])
def test_pruned_weights_are_exactly_zero_in_every_forward_pass(objective: Objective) -> None:
    workspace = Workspace(lambda: SmallCNN(1, CLASSES, 4), CLASSES, active=False)
    workspace.weights.fill_(5)  # left behind by another client
    part = submodel(workspace, 0.1)
    assert part.indices is not None
    outside = torch.ones(workspace.layout.size, dtype=torch.bool)
    outside[part.indices] = False
    outside[part.maskable :] = False
    seen = []
    encode = workspace.model.stages
    assert isinstance(encode, nn.Module)
    encode.register_forward_pre_hook(lambda *_: seen.append(int(workspace.weights[outside].count_nonzero())))
    update = train(task(part, objective), shard(), workspace)
    assert seen == [0] * (6 if objective.uses_prototypes else 5)
    assert int(workspace.weights[outside].count_nonzero()) == 0
    assert bool((workspace.weights[outside] == 0).all())
    assert update.values.shape == part.values.shape
    assert update.values.count_nonzero() > 0


def rows_of(samples: int, batch: int, steps: int, round: int = 2, client: int = 4) -> list[list[int]]:
    images = torch.zeros(samples, 1, 1, 1, dtype=torch.uint8)
    numbered = Shard(images, torch.arange(samples), torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
    part = Submodel(1, None, torch.zeros(1), torch.zeros(0))
    asked = task(part, steps=steps, batch=batch, round=round, client=client)
    return [labels.tolist() for _, labels in batches(asked, numbered, torch.float32)]


def test_batches_by_hand() -> None:
    """7 samples in batches of 3: passes of 3 + 3 + 1, each in an order of its own."""
    found = rows_of(7, 3, 8)
    assert [len(rows) for rows in found] == [3, 3, 1, 3, 3, 1, 3, 3]
    order = rng.stream(7, 2, 4, "batches")
    passes = [order.permutation(7).tolist() for _ in range(3)]
    assert found[0] + found[1] + found[2] == passes[0]
    assert found[3] + found[4] + found[5] == passes[1]
    assert found[6] + found[7] == passes[2][:6]
    assert passes[0] != passes[1]


@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 25))
def test_every_pass_visits_each_sample_once(samples: int, batch: int, steps: int) -> None:
    found = rows_of(samples, batch, steps)
    assert len(found) == steps
    passes = -(-samples // batch)
    for start in range(0, steps, passes):
        visited = [row for rows in found[start : start + passes] for row in rows]
        assert len(set(visited)) == len(visited)
        if start + passes <= steps:
            assert sorted(visited) == list(range(samples))
    assert all(len(rows) <= batch for rows in found)


def test_batches_differ_by_round_and_client_and_are_the_same_again() -> None:
    assert rows_of(40, 40, 1) == rows_of(40, 40, 1)
    assert rows_of(40, 40, 1) != rows_of(40, 40, 1, round=3)
    assert rows_of(40, 40, 1) != rows_of(40, 40, 1, client=5)


def same(one: Update, other: Update) -> bool:
    return torch.equal(one.values, other.values) and torch.equal(one.always, other.always) and one.loss == other.loss


def test_training_is_the_same_again_whatever_the_process_did_before() -> None:
    workspace = Workspace(lambda: SmallCNN(1, CLASSES, 4), CLASSES)
    asked = task(submodel(workspace, 0.3))
    first = train(asked, shard(), workspace)
    train(task(submodel(workspace, None, seed=9), Aligned(0.2, "head"), client=5), shard(13, 8), workspace)
    assert same(train(asked, shard(), workspace), first)
    fresh = Workspace(lambda: SmallCNN(1, CLASSES, 4), CLASSES)
    assert same(train(asked, shard(), fresh), first)


def test_layers_that_sample_follow_from_the_task_and_leave_the_global_generator_alone() -> None:
    workspace = Workspace(Dropping, CLASSES)
    part = submodel(workspace, None)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = train(task(part), shard(), workspace)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(train(task(part), shard(), workspace), first)
    assert not same(train(task(part, seed=8), shard(), workspace), first)
    plain = Workspace(lambda: SmallCNN(1, CLASSES, 4, "group"), CLASSES)
    assert not same(train(task(part), shard(), plain), first)


def test_building_a_workspace_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    workspace = Workspace(Dropping, CLASSES)
    assert torch.equal(torch.get_rng_state(), before)
    assert workspace.classes == CLASSES
    assert workspace.weights.shape == workspace.gradient.shape == (workspace.layout.size,)
    assert next(workspace.model.parameters()).data_ptr() >= workspace.weights.data_ptr()


def test_the_task_is_left_as_it_came() -> None:
    workspace = Workspace(lambda: SmallCNN(1, CLASSES, 4), CLASSES)
    for share in (None, 0.3):
        for objective in (CrossEntropy(), ThresholdGradient()):
            part = submodel(workspace, share)
            values, always = part.values.clone(), part.always.clone()
            update = train(task(part, objective), shard(), workspace)
            assert torch.equal(part.values, values)
            assert torch.equal(part.always, always)
            kept = update.values.clone()
            workspace.weights.fill_(7)
            assert torch.equal(update.values, kept)
            assert update.always.abs().max() < 6


def test_prototypes_are_hand_means_of_the_trained_network() -> None:
    workspace, samples = Workspace(Dropping, CLASSES), shard()
    update = train(task(submodel(workspace, 0.5), Aligned(0.2, "head"), augment=True), samples, workspace)
    assert update.prototypes is not None
    assert update.prototypes.counts.tolist() == [11, 10, 0]
    images, labels = samples.batch(slice(None))
    with torch.no_grad():
        features = SmallCNN.features(workspace.model, images)  # type: ignore[arg-type]
    for label in range(2):
        expected = features[labels == label].double().mean(dim=0).float()
        torch.testing.assert_close(update.prototypes.vectors[label], expected, atol=1e-6, rtol=0)
    assert update.prototypes.vectors[2].tolist() == [0] * 16
    assert train(task(submodel(workspace, 0.5)), samples, workspace).prototypes is None


def test_prototypes_in_small_batches_are_the_same_means() -> None:
    model, samples = double(), shard()
    whole, cut = local_prototypes(model, samples, CLASSES), local_prototypes(model, samples, CLASSES, batch=4)
    torch.testing.assert_close(cut.vectors, whole.vectors, atol=1e-12, rtol=0)
    assert torch.equal(cut.counts, whole.counts)
    with pytest.raises(ValueError, match="a client without samples has no prototypes"):
        local_prototypes(model, shard(0), CLASSES)


@pytest.mark.parametrize("share", [None, 0.25])
def test_an_update_added_to_its_submodel_is_the_trained_network(share: float | None) -> None:
    workspace = Workspace(double, CLASSES, active=False)
    part = submodel(workspace, share)
    update = train(task(part), shard(), workspace)
    trained = Submodel(part.maskable, part.indices, part.values + update.values, part.always + update.always)
    torch.testing.assert_close(flat(trained), workspace.weights, atol=1e-15, rtol=1e-15)
