"""The contract that every recipe has to keep, and the table itself."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from framp.client import Client
from framp.errors import ConfigError
from framp.federation import Federation
from framp.messages import Message, Reply, Submodel, Task, Update
from framp.recipes import RECIPES, find
from framp.server import play

MakeFederation = Callable[..., Federation]

#: The table of the documentation: backbone, descriptors, extractor, objective.
TABLE = {
    "framp": ("Generated", "Features", "GlobalTopK", "Aligned"),
    "framp-no-alignment": ("Generated", "Features", "GlobalTopK", "CrossEntropy"),
    "framp-no-personalisation": ("Shared", "", "GlobalTopK", "Aligned"),
    "framp-neither": ("Shared", "", "GlobalTopK", "CrossEntropy"),
    "framp-layerwise": ("Generated", "Features", "LayerwiseTopK", "Aligned"),
    "framp-mlp": ("Generated", "Features", "LearnedScore", "Aligned"),
    "framp-onehot": ("Generated", "OneHot", "GlobalTopK", "Aligned"),
    "fiarse": ("SharedWhereMoved", "", "GlobalTopK", "ThresholdGradient"),
    "heterofl": ("Shared", "", "WidthPrefix", "LabelMasked"),
    "fedrolex": ("Shared", "", "WidthRolling", "LabelMasked"),
    "scalefl": ("Shared", "", "DepthWidth", "ExitDistillation"),
    "fedavg": ("Shared", "", "Everything", "CrossEntropy"),
}
NAMES = sorted(RECIPES)


def test_the_table_is_the_designs() -> None:
    listed = {name: RECIPES[name].parts for name in NAMES if name in TABLE}
    assert listed == {name: TABLE[name] for name in listed}
    assert {"framp", "framp-no-alignment", "framp-no-personalisation", "framp-neither"} <= set(listed)
    assert {"framp-onehot", "fiarse", "fedavg"} <= set(listed)
    assert all(recipe.summary for recipe in RECIPES.values())


def test_only_features_ask_the_clients_for_something() -> None:
    assert {name: RECIPES[name].wants_features for name in ("framp", "framp-onehot", "fiarse")} == {
        "framp": True,
        "framp-onehot": False,
        "fiarse": False,
    }


def test_an_unknown_recipe_is_answered_with_the_nearest() -> None:
    assert find("framp") is RECIPES["framp"]
    with pytest.raises(ConfigError, match=r"unknown recipe 'fedavgg'; did you mean 'fedavg'\?"):
        find("fedavgg")
    with pytest.raises(ConfigError, match=r"unknown recipe '\?'; known: fedavg, fiarse, framp"):
        find("?")


class Watching:
    """The serial engine, which keeps what it carried and what the client's model held after each task."""

    def __init__(self, federation: Federation, lost: frozenset[int] = frozenset()) -> None:
        self._client = Client(federation.architecture, federation.data)
        self._lost = lost
        self.tasks: list[Task] = []
        self.updates: list[Update] = []
        self.left: list[Tensor] = []

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        for message in messages:
            reply = self._client.answer(message)
            if isinstance(message, Task) and isinstance(reply, Update):
                self.tasks.append(message)
                self.updates.append(reply)
                self.left.append(self._client.workspace.weights.clone())
            if message.client not in self._lost:
                yield reply

    def close(self) -> None:
        pass


def outside(part: Submodel) -> Tensor:
    """Which maskable entries a submodel does not hold."""
    found = torch.full((part.maskable,), part.indices is not None)
    if part.indices is not None:
        found[part.indices] = False
    return found


@pytest.mark.parametrize("recipe", NAMES)
def test_every_task_holds_its_budget_and_pruned_weights_stay_zero(recipe: str, toy_federation: MakeFederation) -> None:
    federation = toy_federation({"recipe": recipe, "federation.participants": 6})
    server, engine = federation.server, Watching(federation)
    for round in (1, 2, 3):
        play(server, engine, round)
    assert len(engine.tasks) == 18
    for task, update, left in zip(engine.tasks, engine.updates, engine.left, strict=True):
        granted = server.method.extractor.granted(server.registry.budget(task.client))
        assert task.submodel.values.numel() <= granted.limit(server.layout.maskable)
        assert update.values.shape == task.submodel.values.shape
        assert bool((left[: task.submodel.maskable][outside(task.submodel)] == 0).all())
        if task.submodel.indices is not None:
            assert bool((task.submodel.indices.diff() > 0).all())
            assert int(task.submodel.indices[-1]) < server.layout.maskable


@pytest.mark.parametrize("recipe", [name for name in NAMES if RECIPES[name].parts[0] == "Shared"])
def test_entries_that_nobody_held_stay_bitwise_as_they_are(recipe: str, toy_federation: MakeFederation) -> None:
    federation = toy_federation({"recipe": recipe, "federation.budgets": ["1/20", "1/10", "1/5"]})
    for round in (1, 2):
        before = federation.server.method.backbone.generate(0).clone()
        engine = Watching(federation)
        play(federation.server, engine, round)
        after = federation.server.method.backbone.generate(0)
        maskable = federation.server.layout.maskable
        untouched = torch.stack([outside(task.submodel) for task in engine.tasks]).all(dim=0)
        if recipe != "fedavg":
            assert untouched.sum() > maskable / 2
        assert torch.equal(
            after[:maskable][untouched].view(torch.int32), before[:maskable][untouched].view(torch.int32)
        )
        assert not torch.equal(after[:maskable][~untouched], before[:maskable][~untouched])
        assert not torch.equal(after[maskable:], before[maskable:])


@pytest.mark.parametrize("recipe", NAMES)
def test_a_client_that_drops_out_might_as_well_not_have_been_sampled(
    recipe: str, toy_federation: MakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = toy_federation({"recipe": recipe}), toy_federation({"recipe": recipe})
    everybody = one.server.sample(1)
    lost = frozenset(everybody[1:3])
    drawn = other.server.sample
    monkeypatch.setattr(other.server, "sample", lambda round: [client for client in drawn(round) if client not in lost])
    with_loss, without = Watching(one, lost), Watching(other)
    for round in (1, 2):
        report = play(one.server, with_loss, round)
        play(other.server, without, round)
        if round == 1:
            assert (len(report.participants), report.accepted) == (4, 2)
        assert one.server.digest() == other.server.digest()


@pytest.mark.parametrize("recipe", NAMES)
@pytest.mark.parametrize("budgets", [["1"], ["1/2"], ["1/16"], ["1/4", "1"], ["0.04", "0.16", "0.36", "0.64", "1"]])
def test_any_number_of_budgets(recipe: str, budgets: list[str], toy_federation: MakeFederation) -> None:
    values: dict[str, Any] = {
        "recipe": recipe,
        "federation.budgets": budgets,
        "federation.shares": [1 / len(budgets)] * len(budgets),
    }
    federation = toy_federation(values)
    report = federation.play_round()
    assert report.accepted == 4
    assert not report.rejected
    found = federation.evaluate()
    assert list(found.groups) == list(found.union_by_size) == budgets
    assert all(0 <= accuracy <= 1 for accuracy in found.clients)


@pytest.mark.parametrize("recipe", NAMES)
def test_the_loss_falls_on_a_separable_problem(recipe: str, toy_federation: MakeFederation) -> None:
    federation = toy_federation(
        {
            "recipe": recipe,
            "federation.budgets": ["1/4", "1/2", "1"],
            "federation.participants": 6,
            "training.steps": 8,
            "alignment.weight": 0.1,
        }
    )
    losses = [report.loss for report in federation.train(8)]
    first, last = losses[0], losses[-1]
    assert first is not None
    assert last is not None
    assert last < 0.7 * first
    assert federation.evaluate().local > 0.5  # chance is 0.25
