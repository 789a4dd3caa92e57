from typing import Any

import pytest
import torch
from torch import Tensor, nn

from framp.config import Config
from framp.data.kinds import Images
from framp.errors import ConfigError
from framp.layout import ParameterLayout
from framp.models import SmallCNN
from framp.server.spool import InMemory
from framp.stage1_generation import Features, Generated, OneHot
from framp.stage1_generation.generated import layer_scales
from framp.updates import MaskedUpdate

MODEL = SmallCNN(1, 3, 2).double()
LAYOUT = ParameterLayout.of(MODEL)
CLIENTS = 6
HEAD = ("head.weight", "head.bias")
TRAINED = ("inner.weight", "inner.bias", *HEAD)


def initial() -> Tensor:
    return 0.1 * torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def made_config(centred: bool) -> Config:
    return Config().with_values({"generation.hidden": 5, "generation.head_scale": 0.1, "generation.centred": centred})


def backbone(**generation: Any) -> Generated:
    settings = {"hidden": 5, "head_scale": 0.1} | generation
    config = Config().with_values({f"generation.{key}": value for key, value in settings.items()})
    raw = torch.randn(CLIENTS, 7, generator=torch.Generator().manual_seed(6))
    return Generated.configured(config, initial(), LAYOUT, Features.configured(config, raw, Images(1, 8, 8), 3))


def updates(share: float | None, clients: tuple[int, ...] = (1, 3, 4)) -> tuple[list[MaskedUpdate], Tensor, Tensor]:
    """Some participants' updates, and the same as a dense matrix with who held what."""
    made, changes, held = [], [], []
    for client in clients:
        generator = torch.Generator().manual_seed(client)
        indices = None
        holds = torch.ones(LAYOUT.size, dtype=torch.bool)
        if share is not None:
            order = torch.randperm(LAYOUT.maskable, generator=generator)
            indices = order[: int(share * LAYOUT.maskable)].sort().values.int()
            holds[: LAYOUT.maskable] = False
            holds[indices] = True
        dense = torch.randn(LAYOUT.size, generator=generator, dtype=torch.float64) * holds
        values = dense[: LAYOUT.maskable] if indices is None else dense[indices]
        made.append(
            MaskedUpdate(
                client, LAYOUT.maskable, None if indices is None else InMemory(indices), InMemory(values),
                dense[LAYOUT.maskable :], LAYOUT.size - LAYOUT.maskable,
            )
        )  # fmt: skip
        changes.append(dense)
        held.append(holds)
    return made, torch.stack(changes), torch.stack(held)


def remembered(made: Generated) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in made.state().items()}


def features(made: Generated, state: dict[str, Tensor], descriptors: Tensor) -> Tensor:
    """What the head sees, written out."""
    inner, bias = state["inner.weight"], state["inner.bias"]
    hidden = torch.relu(descriptors.double() @ inner.T + bias)
    if made.config.centred:
        return hidden - torch.relu(made.descriptors.mean().double() @ inner.T + bias)
    return hidden


def forward(made: Generated, state: dict[str, Tensor], descriptors: Tensor) -> Tensor:
    return features(made, state, descriptors) @ state["head.weight"].T + state["head.bias"]


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("share", [None, 0.05, 0.3, 0.9])
def test_the_papers_rule_is_a_step_of_descent_by_autograd(share: float | None, centred: bool) -> None:
    """Equal rates and the mean over participants: φ ← φ + β mean_n J_nᵀ Δ_n, with M_n constant."""
    made = backbone(shared_rate=0.3, personal_rate=0.3, shared_mean="participants", centred=centred)
    received, changes, _ = updates(share)
    state = {name: made.state()[name].clone().requires_grad_() for name in TRAINED}
    descriptors = torch.stack([made.descriptors.of(client) for client in (1, 3, 4)])
    optimiser = torch.optim.SGD(list(state.values()), lr=0.3)
    loss = -(forward(made, state, descriptors) * changes).sum() / 3
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    made.learn(received)
    for name in TRAINED:
        torch.testing.assert_close(made.state()[name], state[name].detach(), atol=1e-10, rtol=0)
    torch.testing.assert_close(
        made.generate(2), forward(made, made.state(), made.descriptors.of(2)), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("mean", ["holders", "participants"])
@pytest.mark.parametrize("share", [None, 0.05, 0.9])
def test_the_shared_part_moves_by_its_own_rate_and_mean(share: float | None, mean: str) -> None:
    made = backbone(shared_rate=0.8, personal_rate=0.1, shared_mean=mean)
    received, changes, held = updates(share)
    before = remembered(made)
    made.learn(received)
    for entry in range(LAYOUT.size):
        total = sum(float(changes[n, entry]) for n in range(3))
        count = max(int(held[:, entry].sum()), 1) if mean == "holders" else 3
        expected = float(before["head.bias"][entry]) + 0.8 * total / count
        assert abs(float(made.state()["head.bias"][entry]) - expected) < 1e-12


@pytest.mark.parametrize("head", ["full", "blocks"])
@pytest.mark.parametrize("share", [None, 0.05, 0.9])
def test_generated_models_move_towards_trained_ones(share: float | None, head: str) -> None:
    made = backbone(shared_rate=0.01, personal_rate=0.01, head=head)
    received, changes, _ = updates(share)
    before = torch.stack([made.generate(client) for client in (1, 3, 4)])
    made.learn(received)
    after = torch.stack([made.generate(client) for client in (1, 3, 4)])
    assert bool((((after - before) * changes).sum(dim=1) > 0).all())


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_entries_that_nobody_held_stay_bitwise_as_they_are(share: float) -> None:
    made = backbone()
    received, _, held = updates(share)
    nobody = ~held.any(dim=0)
    before = remembered(made)
    made.learn(received)
    for name in HEAD:
        kept, now = before[name][nobody], made.state()[name][nobody]
        assert torch.equal(now.view(torch.int64), kept.view(torch.int64))
        assert not torch.equal(made.state()[name][~nobody], before[name][~nobody])


@pytest.mark.parametrize("centred", [False, True])
def test_the_gains_are_how_far_one_step_carries(centred: bool) -> None:
    made = backbone(personal_rate=0.4, shared_rate=0.9, centred=centred)
    received, _, _ = updates(0.3)
    seen = [features(made, made.state(), made.descriptors.of(client)) for client in (1, 3, 4)]
    own = sum(float(f @ f) for f in seen) / 3 * 0.4 / 3 + 0.9 / 3
    others = sum(float(seen[i] @ seen[j]) for i in range(3) for j in range(3) if i != j) / 6 * 0.4 / 3 + 0.9 / 3
    found = made.learn(received)
    assert found["gain_own"] == pytest.approx(own, abs=1e-12)
    assert found["gain_others"] == pytest.approx(others, abs=1e-12)


def test_a_single_participant_has_no_others() -> None:
    found = backbone().learn(updates(0.3, clients=(2,))[0])
    assert found["gain_own"] > 0
    assert found["gain_others"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("head", ["full", "blocks"])
@pytest.mark.parametrize("centred", [False, True])
def test_everybody_starts_at_the_initial_network(centred: bool, head: str) -> None:
    made = backbone(head_scale=0, centred=centred, head=head)
    assert torch.equal(made.state()["head.bias"], initial())
    for generated in (made.generate(3), made.serve(2), made.generate_union()):
        assert torch.equal(generated, initial())


@pytest.mark.parametrize("head", ["full", "blocks"])
@pytest.mark.parametrize("centred", [False, True])
def test_with_a_head_scale_everybody_starts_near_the_initial_network_and_norms_at_it(centred: bool, head: str) -> None:
    made = backbone(centred=centred, head=head)
    assert torch.equal(made.state()["head.bias"], initial())
    models = torch.stack([made.generate(client) for client in range(CLIENTS)])
    assert bool((models[:, LAYOUT.maskable :] == initial()[LAYOUT.maskable :]).all())
    assert len({tuple(model[:10].tolist()) for model in models}) == CLIENTS
    assert float((models - initial()).norm()) < 0.5 * CLIENTS**0.5 * float(initial().norm())
    scale = float((models[0] - initial()).norm() / layer_scales(initial(), LAYOUT).norm())
    assert 0.05 < scale < 0.2  # a tenth of each layer's own scale


@pytest.mark.parametrize("centred", [False, True])
def test_a_head_scale_where_the_hidden_units_are_off(centred: bool) -> None:
    for seed in range(10):
        values = {"generation.hidden": 1, "generation.head_scale": 0.1, "generation.centred": centred, "seed": seed}
        features = Features(torch.ones(1, 7), True)
        made = Generated.configured(Config().with_values(values), initial(), LAYOUT, features)
        assert bool(torch.isfinite(made.state()["head.weight"]).all())
        assert bool(torch.isfinite(made.generate(0)).all())


def test_the_union_model_is_generated_from_the_mean_descriptor() -> None:
    for centred in (False, True):
        made = backbone(centred=centred)
        mean = torch.stack([made.descriptors.of(client) for client in range(CLIENTS)]).double().mean(dim=0)
        torch.testing.assert_close(made.generate_union(), forward(made, made.state(), mean), atol=1e-6, rtol=0)
        config = made_config(centred)
        onehot = Generated.configured(config, initial(), LAYOUT, OneHot(4))
        for found, row in ((onehot.generate_union(), torch.full((4,), 0.25)), (onehot.generate(2), torch.eye(4)[2])):
            torch.testing.assert_close(found, forward(onehot, onehot.state(), row), atol=1e-12, rtol=0)


@pytest.mark.parametrize("head", ["full", "blocks"])
def test_with_the_average_client_as_the_centre_the_union_model_is_the_shared_part(head: str) -> None:
    made = backbone(centred=True, head=head)
    made.learn(updates(0.3)[0])
    assert torch.equal(made.generate_union(), made.state()["head.bias"])


@pytest.mark.parametrize("head", ["full", "blocks"])
@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_models_in_use_are_as_personal_as_configured(strength: float, head: str) -> None:
    made = backbone(served_strength=strength, head=head)
    made.learn(updates(0.3)[0])
    expected = strength * made.generate(2) + (1 - strength) * made.generate_union()
    torch.testing.assert_close(made.serve(2), expected, atol=1e-12, rtol=0)
    assert bool((made.generate(2) != made.generate_union()).any())


@pytest.mark.parametrize("head", ["full", "blocks"])
def test_the_state_is_the_memory_itself_and_can_be_taken_over(head: str) -> None:
    one, other = backbone(head=head), backbone(head=head)
    state = one.state()
    one.learn(updates(0.3)[0])
    assert not torch.equal(one.generate(1), other.generate(1))
    for name, tensor in other.state().items():  # as the server takes a state over
        tensor.copy_(state[name])
    assert torch.equal(one.generate(1), other.generate(1))
    one.learn(updates(0.3)[0])
    assert not torch.equal(one.generate(1), other.generate(1))


@pytest.mark.parametrize("head", ["full", "blocks"])
def test_a_generated_model_is_the_callers_to_change(head: str) -> None:
    made = backbone(head=head)
    before = remembered(made)
    made.generate(0).fill_(9)
    made.generate_union().fill_(9)
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.state().items())


@pytest.mark.parametrize("name", ["inner.weight", "inner.bias", "head.weight"])
def test_the_seed_decides_the_start(name: str) -> None:
    def start(seed: int) -> Tensor:
        config = made_config(True).with_values({"seed": seed})
        return Generated.configured(config, initial(), LAYOUT, OneHot(4)).state()[name]

    assert torch.equal(start(1), start(1))
    assert not torch.equal(start(1), start(2))


def test_descriptors_are_needed() -> None:
    with pytest.raises(ConfigError) as caught:
        Generated.configured(Config(), initial(), LAYOUT, None)
    assert str(caught.value) == "a generated backbone needs descriptors; name them in the recipe"


def test_layer_scales_by_hand() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Conv1d(1, 1, 1))
    layout = ParameterLayout.of(model)
    vector = torch.tensor([1.0, 2.0, 3.0, 6.0, 5.0, 9.0, 4.0, 7.0, 1.0, 1.0, 0.0, 3.0])
    # weight (1, 2, 3, 6): mean 3, squares 4+1+0+9; bias (5, 9): squares 4+4; a layer of one entry has no spread
    expected = [(14 / 3) ** 0.5] * 4 + [8**0.5] * 2 + [0.0] * 6
    assert layer_scales(vector, layout).tolist() == pytest.approx(expected, abs=1e-6)


def test_head_weights_have_their_layers_own_scale() -> None:
    made = backbone(hidden=64, head_scale=1.0)
    scales = layer_scales(initial(), LAYOUT)
    ratios = {}
    for entry in LAYOUT.entries:
        if entry.stop <= LAYOUT.maskable and entry.stop - entry.start >= 18:
            rows = slice(entry.start, entry.stop)
            ratios[entry.name] = float(made.state()["head.weight"][rows].std() / scales[entry.start])
    assert len(ratios) >= 3
    assert max(ratios.values()) < 1.1 * min(ratios.values())
    half = backbone(hidden=64, head_scale=0.5).state()["head.weight"]
    torch.testing.assert_close(half, made.state()["head.weight"] / 2, atol=1e-12, rtol=1e-6)
