"""The contract that every recipe has to keep, and the table itself."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from framp.client import Client
from framp.client.training import batches
from framp.data import Graph
from framp.errors import ConfigError
from framp.federation import Federation
from framp.messages import Message, Reply, Submodel, Task, Update
from framp.models import initialised
from framp.recipes import RECIPES, find
from framp.runs.tensors import write_tensors
from framp.server import play
from framp.wire import Traffic

MakeFederation = Callable[..., Federation]

#: The table of the documentation: backbone, descriptors, extractor, objective.
TABLE = {
    "framp": ("Generated", "Features", "GlobalTopK", "Aligned"),
    "framp-no-alignment": ("Generated", "Features", "GlobalTopK", "CrossEntropy"),
    "framp-no-personalisation": ("Shared", "", "GlobalTopK", "Aligned"),
    "framp-neither": ("Shared", "", "GlobalTopK", "CrossEntropy"),
    "framp-layerwise": ("Generated", "Features", "LayerwiseTopK", "Aligned"),
    "framp-cost": ("Generated", "Features", "CostTopK", "Aligned"),
    "framp-mlp": ("Generated", "Features", "LearnedScore", "Aligned"),
    "framp-onehot": ("Generated", "OneHot", "GlobalTopK", "Aligned"),
    "framp-update": ("Generated", "TrainedFeatures", "GlobalTopK", "Aligned"),
    "fiarse": ("SharedWhereMoved", "", "GlobalTopK", "ThresholdGradient"),
    "heterofl": ("Shared", "", "WidthPrefix", "LabelMasked"),
    "fedrolex": ("Shared", "", "WidthRolling", "LabelMasked"),
    "scalefl": ("Shared", "", "DepthWidth", "ExitDistillation"),
    "fedavg": ("Shared", "", "Everything", "CrossEntropy"),
}
NAMES = sorted(RECIPES)
#: Every recipe, and framp with its other head.
METHODS: dict[str, dict[str, Any]] = {name: {"recipe": name} for name in NAMES} | {
    "framp, blocks": {"recipe": "framp", "generation.head": "blocks", "generation.latent": 3, "generation.block": 20}
}


@pytest.fixture(params=["toy_federation", "toy_graph_federation"], ids=["images", "graph"])
def over_any(request: pytest.FixtureRequest) -> MakeFederation:
    """The maker of federations over each kind of data."""
    make: MakeFederation = request.getfixturevalue(request.param)
    return make


def test_the_table_is_the_designs() -> None:
    assert {name: recipe.parts for name, recipe in RECIPES.items()} == TABLE
    assert all(recipe.summary for recipe in RECIPES.values())


def test_only_features_ask_the_clients_for_something() -> None:
    asking = {name for name, recipe in RECIPES.items() if recipe.wants_features}
    assert asking == {name for name, parts in TABLE.items() if parts[1] in ("Features", "TrainedFeatures")}


def test_an_unknown_recipe_is_answered_with_the_nearest() -> None:
    assert find("framp") is RECIPES["framp"]
    with pytest.raises(ConfigError, match=r"unknown recipe 'fedavgg'; did you mean 'fedavg'\?"):
        find("fedavgg")
    with pytest.raises(ConfigError, match=r"unknown recipe '\?'; known: fedavg, fedrolex, fiarse, framp"):
        find("?")


class Watching:
    """The serial engine, which keeps what it carried and what the client's model held after each task."""

    traffic = Traffic()

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


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_task_holds_its_budget_and_pruned_weights_stay_zero(
    method: dict[str, Any], over_any: MakeFederation
) -> None:
    federation = over_any({**method, "federation.participants": 6})
    server, engine = federation.server, Watching(federation)
    for round in (1, 2, 3):
        play(server, engine, round)
    assert len(engine.tasks) == 18
    for task, update, left in zip(engine.tasks, engine.updates, engine.left, strict=True):
        submodel = task.submodel
        granted = server.method.extractor.granted(server.registry.budget(task.client))
        assert submodel.values.numel() <= granted.limit(server.layout.maskable)
        assert update.values.shape == submodel.values.shape
        if left.numel() > submodel.values.numel() + submodel.always.numel():
            assert submodel.shapes is None
            assert bool((left[: submodel.maskable][outside(submodel)] == 0).all())
        else:  # what was pruned is not even there
            assert left.numel() == submodel.values.numel() + submodel.always.numel()
        if submodel.indices is not None:
            assert bool((submodel.indices.diff() > 0).all())
            assert int(submodel.indices[-1]) < server.layout.maskable


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_entries_that_nobody_held_stay_bitwise_as_they_are(method: dict[str, Any], over_any: MakeFederation) -> None:
    federation = over_any({**method, "federation.budgets": ["1/20", "1/10", "1/5"]})
    maskable = federation.server.layout.maskable
    for round in (1, 2):
        before = {name: tensor.clone() for name, tensor in per_entry(federation).items()}
        engine = Watching(federation)
        play(federation.server, engine, round)
        untouched = torch.stack([outside(task.submodel) for task in engine.tasks]).all(dim=0)
        if method["recipe"] != "fedavg":
            assert untouched.sum() > maskable / 2
        for name, after in per_entry(federation).items():
            assert torch.equal(bits(after[:maskable][untouched]), bits(before[name][:maskable][untouched])), name
            assert not torch.equal(after[:maskable][~untouched], before[name][:maskable][~untouched]), name
            if federation.server.layout.size > maskable:  # norms, which a graph network does not have
                assert not torch.equal(after[maskable:], before[name][maskable:]), name


def per_entry(federation: Federation) -> dict[str, Tensor]:
    """What the server has learned with a row for each entry of the flat vector."""
    state = federation.server.state()
    return {name: state[name] for name in ("shared", "head.bias", "head.weight") if name in state}


def bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.int32)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_any_order_of_arrival_gives_the_same_bits(method: dict[str, Any], over_any: MakeFederation) -> None:
    """Two rounds of five participants, the updates of the second in fifty orders."""
    federation = over_any({**method, "federation.participants": 5})
    server, engine = federation.server, Watching(federation)
    play(server, engine, 1)
    start = {name: tensor.clone() for name, tensor in server.state().items()}
    shuffle = random.Random(0)
    digests: set[str] = set()
    orders: set[tuple[int, ...]] = set()
    for _ in range(50):
        server.load(start)
        inbox = server.inbox()
        tasks = [server.task(client, 2, inbox) for client in server.sample(2)]
        if not digests:
            updates = [reply for reply in engine.exchange(tasks) if isinstance(reply, Update)]
            tokens = {task.client: task.token for task in tasks}
        arrived = shuffle.sample(updates, len(updates))
        orders.add(tuple(update.client for update in arrived))
        sent = {task.client: task.token for task in tasks}
        assert sent != tokens or not digests
        for update in arrived:
            inbox.receive(replace(update, token=sent[update.client]))
        assert len(inbox.accepted) == 5
        server.merge(inbox)
        inbox.close()
        digests.add(server.digest())
    assert len(orders) > 30
    assert len(digests) == 1


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_resumed_run_and_other_processes_give_the_same_bits(
    method: dict[str, Any], over_any: MakeFederation, tmp_path: Path
) -> None:
    """Four rounds at once; two, then two from disk; by worker processes. Descriptors are refreshed in between."""
    values = {**method, "generation.refresh_every": 2}
    whole = over_any(values)
    reports = list(whole.train(4))

    begun = over_any(values)
    list(begun.train(2))
    write_tensors(tmp_path / "state", begun.server.state())
    resumed = over_any(values)
    resumed.server.load(load_file(tmp_path / "state"))
    resumed.rounds_played = 2
    list(resumed.train(2))
    assert resumed.server.digest() == whole.server.digest()
    assert resumed.evaluate() == whole.evaluate()

    spread = over_any({**values, "engine.name": "processes", "engine.workers": 2})
    assert [report.loss for report in spread.train(4)] == [report.loss for report in reports]
    assert spread.server.digest() == whole.server.digest()
    assert spread.evaluate() == whole.evaluate()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_comparison_is_fair(method: dict[str, Any], over_any: MakeFederation) -> None:
    """Partition, initial network, sampling of clients and batches are those of fedavg, whatever the recipe."""
    one, other = over_any(method), over_any({"recipe": "fedavg"})
    assert one.data.partition.sha256 == other.data.partition.sha256
    assert [one.server.sample(round) for round in range(1, 6)] == [other.server.sample(round) for round in range(1, 6)]
    initial = initialised(other.architecture, 0).state_dict()
    own = initialised(one.architecture, 0).state_dict()
    shared = {name.removeprefix("network."): tensor for name, tensor in own.items()}
    assert all(torch.equal(shared[name], tensor) for name, tensor in initial.items())
    assert (set(shared) == set(initial)) == (RECIPES[method["recipe"]].form is None)

    engines = Watching(one), Watching(other)
    for federation, engine in zip((one, other), engines, strict=True):
        play(federation.server, engine, 1)
    for task, reference in zip(engines[0].tasks, engines[1].tasks, strict=True):
        assert task.client == reference.client
        assert task.training == reference.training
        shard = one.data.training(task.client)
        own_batches, their_batches = batches(task, shard, torch.float32), batches(reference, shard, torch.float32)
        for (inputs, labels), (their_inputs, their_labels) in zip(own_batches, their_batches, strict=True):
            entered, their_entered = one.data.kind.entrance(inputs), other.data.kind.entrance(their_inputs)
            assert torch.equal(entered, their_entered)
            if isinstance(inputs, Graph):
                assert inputs.rows is not None
                assert torch.equal(inputs.rows, their_inputs.rows)
            assert torch.equal(labels, their_labels)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_client_that_drops_out_might_as_well_not_have_been_sampled(
    method: dict[str, Any], over_any: MakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = over_any(method), over_any(method)
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


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("budgets", [["1"], ["1/2"], ["1/16"], ["1/4", "1"], ["0.04", "0.16", "0.36", "0.64", "1"]])
def test_any_number_of_budgets(method: dict[str, Any], budgets: list[str], over_any: MakeFederation) -> None:
    values: dict[str, Any] = {
        **method,
        "federation.budgets": budgets,
        "federation.shares": [1 / len(budgets)] * len(budgets),
    }
    federation = over_any(values)
    report = federation.play_round()
    assert report.accepted == 4
    assert not report.rejected
    found = federation.evaluate()
    assert list(found.groups) == list(found.union_by_size) == budgets
    assert all(0 <= accuracy <= 1 for accuracy in found.clients)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_loss_falls_on_a_separable_problem(method: dict[str, Any], over_any: MakeFederation) -> None:
    federation = over_any(
        {
            **method,
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
