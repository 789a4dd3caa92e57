import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from framp import rng
from framp.budgets import FULL, Budget
from framp.errors import BudgetError
from framp.federation import Federation
from framp.messages import Description, Prototypes, Task, Update
from framp.server import Server

MakeFederation = Callable[..., Federation]
RECIPES = ("framp", "framp-no-personalisation", "fiarse", "fedavg")


def made_up(task: Task, server: Server) -> Update:
    """An update that answers its task, of random numbers instead of training."""
    generator = torch.Generator().manual_seed(task.client)

    def noise(like: torch.Tensor) -> torch.Tensor:
        return 0.01 * torch.randn(like.shape, generator=generator, dtype=like.dtype)

    prototypes = None
    if task.objective.uses_prototypes:
        counts = torch.zeros(len(server.prototypes.counts), dtype=torch.int64)
        counts[task.client % len(counts)] = int(server.registry.samples[task.client])
        prototypes = Prototypes(noise(server.prototypes.vectors), counts)
    values, always = noise(task.submodel.values), noise(task.submodel.always)
    return Update(task.round, task.client, task.token, values, always, prototypes, 1.0)


def merged(server: Server, round: int, arrange: Callable[[list[Update]], list[Update]]) -> str:
    """Play a round with made-up updates that arrive as arranged; return the digest."""
    box = server.inbox()
    tasks = [server.task(client, round, box) for client in server.sample(round)]
    for update in arrange([made_up(task, server) for task in tasks]):
        box.receive(update)
    server.merge(box)
    box.close()
    return server.digest()


def restore(server: Server, state: dict[str, torch.Tensor]) -> None:
    server.load({name: tensor.clone() for name, tensor in state.items()})


def remembered(server: Server) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in server.state().items()}


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_order_of_arrival_does_not_matter(recipe: str, toy_federation: MakeFederation) -> None:
    server = toy_federation({"recipe": recipe, "federation.participants": 5}).server
    state = remembered(server)
    before = server.digest()
    shuffle = random.Random(0)
    digests = set()
    for _ in range(50):
        restore(server, state)
        assert server.digest() == before
        digests.add(merged(server, 1, lambda updates: shuffle.sample(updates, len(updates))))
    assert len(digests) == 1
    assert before not in digests


def spoil(update: Update) -> list[Update]:
    values = update.values.clone()
    values[0] = float("nan")
    return [
        dataclasses.replace(update, values=values),
        dataclasses.replace(update, token=update.token + 1),
        dataclasses.replace(update, round=update.round + 1),
        dataclasses.replace(update, values=update.values[1:]),
    ]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_rejected_update_is_merged_as_if_it_had_never_been(recipe: str, toy_federation: MakeFederation) -> None:
    server = toy_federation({"recipe": recipe}).server
    state = remembered(server)
    without = merged(server, 1, lambda updates: updates[1:])
    restore(server, state)
    with_rejected = merged(server, 1, lambda updates: spoil(updates[0]) + updates[1:] + spoil(updates[0]))
    assert with_rejected == without
    restore(server, state)
    assert merged(server, 1, lambda updates: updates) != without


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_round_in_which_all_is_rejected_changes_nothing(recipe: str, toy_federation: MakeFederation) -> None:
    server = toy_federation({"recipe": recipe}).server
    merged(server, 1, lambda updates: updates)
    before = server.digest()
    assert merged(server, 2, lambda updates: list(itertools.chain(*map(spoil, updates)))) == before
    assert merged(server, 2, lambda updates: []) == before
    box = server.inbox()
    server.task(0, 3, box)
    assert server.merge(box) == {}
    assert server.digest() == before


@pytest.mark.parametrize("recipe", RECIPES)
def test_waiting_on_disk_changes_no_bit(recipe: str, toy_federation: MakeFederation) -> None:
    digests = [
        merged(toy_federation({"recipe": recipe, "engine.inbox_bytes": memory}).server, 1, lambda updates: updates)
        for memory in (0, 5000, 1 << 20)
    ]
    assert len(set(digests)) == 1


def test_the_digest_sees_every_bit_name_and_shape(toy_federation: MakeFederation) -> None:
    server = toy_federation().server
    before = server.digest()
    for name, tensor in server.state().items():
        flat = tensor.view(-1)
        old = flat[0].clone()
        flat[0] = old + 1
        assert server.digest() != before, name
        flat[0] = old
        assert server.digest() == before
    assert len(before) == 64


def test_a_saved_state_can_be_taken_over(toy_federation: MakeFederation) -> None:
    one, other = toy_federation({"seed": 1}).server, toy_federation({"seed": 2}).server
    merged(one, 1, lambda updates: updates)
    assert one.digest() != other.digest()
    restore(other, one.state())
    assert other.digest() == one.digest()
    saved = one.digest()
    merged(one, 2, lambda updates: updates)
    assert other.digest() == saved


def test_a_state_of_other_tensors_is_refused(toy_federation: MakeFederation) -> None:
    server = toy_federation().server
    before, state = server.digest(), server.state()
    smaller = {name: tensor[:1] if tensor.ndim else tensor for name, tensor in state.items()}
    for wrong in ({}, smaller, state | {"more": torch.zeros(1)}, toy_federation({"recipe": "fiarse"}).server.state()):
        with pytest.raises(ValueError, match="the state is that of another recipe or another network"):
            server.load(wrong)
    assert server.digest() == before


def test_a_task_tells_nothing_about_the_others(toy_federation: MakeFederation) -> None:
    """Tokens are never the same twice, and the task's seed is not the run's, from which all others follow."""
    server = toy_federation({"seed": 3}).server
    tasks = [server.task(client, round, server.inbox()) for round in (1, 2) for client in (0, 1, 0)]
    assert len({task.token for task in tasks}) == 6
    assert len({task.seed for task in tasks}) == 4
    assert 3 not in {task.seed for task in tasks}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_task_is_the_submodel_that_the_budget_allows(recipe: str, toy_federation: MakeFederation) -> None:
    server = toy_federation({"recipe": recipe, "seed": 3}).server
    merged(server, 1, lambda updates: updates)
    box = server.inbox()
    for client in range(6):
        task = server.task(client, 2, box)
        budget = FULL if recipe == "fedavg" else server.registry.budget(client)
        assert task.budget == budget
        assert task.submodel.values.numel() == budget.limit(server.layout.maskable)
        vector = server.method.backbone.generate(client)
        part = vector[: server.layout.maskable]
        assert torch.equal(task.submodel.values, part if task.submodel.indices is None else part[task.submodel.indices])
        assert torch.equal(task.submodel.always, vector[server.layout.maskable :])
        assert (task.round, task.client, task.seed) == (2, client, rng.number(3, 2, client, "task"))
        assert task.training == server.training
        assert (task.prototypes is not None) == task.objective.uses_prototypes
        assert box.objection(made_up(task, server)) is None


def test_a_task_is_a_copy_of_the_servers_state(toy_federation: MakeFederation) -> None:
    for recipe in RECIPES:
        server = toy_federation({"recipe": recipe}).server
        before = server.digest()
        task = server.task(5, 1, server.inbox())
        task.submodel.values.fill_(3)
        task.submodel.always.fill_(3)
        assert server.digest() == before


def test_the_first_round_has_no_prototypes(toy_federation: MakeFederation) -> None:
    server = toy_federation().server
    assert server.task(0, 1, server.inbox()).prototypes is None
    merged(server, 1, lambda updates: updates)
    snapshot = server.task(0, 2, server.inbox()).prototypes
    assert snapshot is not None
    held = {client % 4 for client in server.sample(1)}
    assert {label for label in range(4) if snapshot.counts[label]} == held


def test_the_longest_tasks_come_first(toy_federation: MakeFederation) -> None:
    server = toy_federation({"federation.participants": 6}).server
    assert server.sample(1) == [4, 5, 2, 3, 0, 1]
    few = toy_federation().server
    assert sorted(few.sample(7)) == sorted(few.registry.sample(4, 0, 7))
    fractions = [few.registry.budget(client).fraction for client in few.sample(7)]
    assert fractions == sorted(fractions, reverse=True)


def test_models_in_use_are_as_personal_as_configured_and_trained_ones_always_are(
    toy_federation: MakeFederation,
) -> None:
    half = Budget.parse("1/2")
    found: dict[float, list[torch.Tensor]] = {}
    for strength in (0.0, 0.5, 1.0):
        server = toy_federation({"generation.served_strength": strength}).server
        merged(server, 1, lambda updates: updates)
        assert server.task(0, 2, server.inbox()).submodel.values.numel() == 193
        found[strength] = [server.personal(0, 1, FULL).values, server.union(FULL, 1).values]
        trained = server.task(4, 2, server.inbox()).submodel.values
        found[strength].append(trained)
        assert server.personal(0, 1, half).values.numel() == 772
    for part in (1, 2):  # the Union model and what is trained do not depend on it
        assert torch.equal(found[0.0][part], found[1.0][part])
        assert torch.equal(found[0.5][part], found[1.0][part])
    none, midway, own = (found[strength][0] for strength in (0.0, 0.5, 1.0))
    torch.testing.assert_close(none, found[0.0][1], atol=1e-6, rtol=0)
    torch.testing.assert_close(midway, (none + own) / 2, atol=1e-6, rtol=0)
    assert not torch.allclose(none, own, atol=1e-5)


def test_models_of_other_sizes(toy_federation: MakeFederation) -> None:
    server = toy_federation().server
    maskable = server.layout.maskable
    half = Budget.parse("1/2")
    assert server.personal(0, 0).values.numel() == maskable // 8
    assert server.personal(0, 0, half).values.numel() == server.union(half, 0).values.numel() == maskable // 2
    assert server.union(FULL, 0).indices is None


@pytest.mark.parametrize("recipe", ["framp", "fiarse"])
def test_a_budget_that_holds_nothing_is_refused(recipe: str, toy_federation: MakeFederation) -> None:
    values: dict[str, Any] = {
        "recipe": recipe, "federation.budgets": ["1/2000", "1"], "federation.shares": [0.5, 0.5]
    }  # fmt: skip
    with pytest.raises(BudgetError) as caught:
        toy_federation(values)
    assert str(caught.value) == (
        "budget 1/2000 of a model with 1544 parameters holds none of them; "
        "raise the budget or model.width (gcn: model.hidden)"
    )


def test_a_method_that_ignores_budgets_takes_any(toy_federation: MakeFederation) -> None:
    values = {"recipe": "fedavg", "federation.budgets": ["1/2000", "1"], "federation.shares": [0.5, 0.5]}
    assert toy_federation(values).server.personal(0, 0).values.numel() == 1544


def test_the_fraction_that_a_client_really_holds(toy_federation: MakeFederation) -> None:
    """Of 1544 parameters: a network of (2, 4, 8) channels has 2*9 + 8*9 + 32*9 + 8*4 + 4 = 414 of them."""
    quarter = Budget.parse("1/4")
    assert toy_federation({"recipe": "fedavg"}).server.held(quarter) == 1
    assert toy_federation({"recipe": "framp"}).server.held(quarter) == 386 / 1544
    original = toy_federation({"recipe": "heterofl", "width.rule": "original"}).server
    assert original.layout.maskable == 1544
    assert original.held(quarter) == 414 / 1544
    assert toy_federation({"recipe": "heterofl"}).server.held(quarter) <= 1 / 4


def test_only_valid_descriptions_take_the_place_of_old_ones(toy_federation: MakeFederation) -> None:
    server = toy_federation({"recipe": "framp-update", "generation.refresh_every": 3}).server
    descriptors = server.method.descriptors
    assert descriptors is not None
    assert [len(server.questions(round)) for round in range(1, 8)] == [0, 0, 0, 6, 0, 0, 6]
    before = server.state()["descriptors.raw"].clone()
    wanted, broken = torch.ones(128), torch.full((128,), float("nan"))
    server.redescribe(
        Description(client, vector, 1)
        for client, vector in [(0, wanted), (1, broken), (2, torch.ones(3)), (-1, wanted), (6, wanted)]
    )
    after = server.state()["descriptors.raw"]
    assert torch.equal(after[0], wanted)
    assert torch.equal(after[1:], before[1:])
    assert not torch.equal(descriptors.of(0), torch.zeros(128))
    torch.testing.assert_close(server.state()["descriptors.centre"], after.mean(dim=0))
