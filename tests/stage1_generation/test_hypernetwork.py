from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from framp.stage1_generation import Hypernetwork
from framp.updates import Block

NAMES = ("inner.weight", "inner.bias", "head.weight", "head.bias")


def network(dimensions: int, hidden: int, size: int, seed: int, centred: bool = False) -> Hypernetwork:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Hypernetwork(
        draw(hidden, dimensions), draw(hidden), draw(size, hidden), draw(size), draw(dimensions), centred
    )


def features(network: Hypernetwork, state: dict[str, Tensor], descriptors: Tensor) -> Tensor:
    """f(v), written out."""
    found = torch.relu(descriptors @ state["inner.weight"].T + state["inner.bias"])
    if network.centred:
        found = found - torch.relu(network.average @ state["inner.weight"].T + state["inner.bias"])
    return found


def cut(changes: Tensor, held: Tensor, size: int, indexed: bool) -> Iterator[Block]:
    """The changes as blocks of some size, as ranges or as indices of the entries that somebody held."""
    for start in range(0, changes.shape[1], size):
        rows = torch.arange(start, min(start + size, changes.shape[1]))
        holders = held[:, rows].sum(dim=0)
        if indexed:
            rows = rows[holders > 0]
            yield Block(rows, changes[:, rows], held[:, rows].sum(dim=0).double())
        else:
            yield Block(slice(start, start + len(rows)), changes[:, rows], holders.double())


def oracle(network: Hypernetwork, descriptors: Tensor, changes: Tensor) -> dict[str, Tensor]:
    """Autograd's gradient of -mean_n <H(v_n), Δ_n>, with the Δ_n held constant."""
    state = {name: network.state()[name].clone().requires_grad_() for name in NAMES}
    generated = features(network, state, descriptors) @ state["head.weight"].T + state["head.bias"]
    loss = -(generated * changes).sum() / len(descriptors)
    gradients = torch.autograd.grad(loss, [state[name] for name in NAMES])
    return dict(zip(NAMES, gradients, strict=True))


@st.composite
def problems(draw: st.DrawFn) -> tuple[Hypernetwork, Tensor, Tensor, Tensor]:
    dimensions, hidden, size = draw(st.integers(1, 5)), draw(st.integers(1, 6)), draw(st.integers(1, 25))
    participants, seed = draw(st.integers(1, 5)), draw(st.integers(0, 10**6))
    generator = torch.Generator().manual_seed(seed)
    descriptors = torch.randn(participants, dimensions, generator=generator, dtype=torch.float64)
    held = torch.rand(participants, size, generator=generator) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    changes = torch.randn(participants, size, generator=generator, dtype=torch.float64) * held
    return network(dimensions, hidden, size, seed + 1, draw(st.booleans())), descriptors, changes, held


@given(problems(), st.integers(1, 30), st.booleans())
def test_the_literal_rule_is_a_step_of_descent_by_autograd(
    problem: tuple[Hypernetwork, Tensor, Tensor, Tensor], size: int, indexed: bool
) -> None:
    network, descriptors, changes, held = problem
    gradients = oracle(network, descriptors, changes)
    expected = {name: network.state()[name] - 0.3 * gradients[name] for name in NAMES}
    network.learn(descriptors, cut(changes, held, size, indexed), 0.3, 0.3, by_holders=False)
    for name in NAMES:
        torch.testing.assert_close(network.state()[name], expected[name], atol=1e-10, rtol=0)


@given(problems(), st.integers(1, 30), st.booleans(), st.booleans())
def test_the_shared_part_has_a_rate_and_a_mean_of_its_own(
    problem: tuple[Hypernetwork, Tensor, Tensor, Tensor], size: int, indexed: bool, by_holders: bool
) -> None:
    network, descriptors, changes, held = problem
    gradients = oracle(network, descriptors, changes)
    expected = {name: network.state()[name] - 0.2 * gradients[name] for name in NAMES}
    bias = network.head_bias.clone()
    for entry in range(len(bias)):
        total = sum(float(changes[n, entry]) for n in range(len(changes)))
        count = int(held[:, entry].sum()) if by_holders else len(changes)
        bias[entry] += 0.7 * total / max(count, 1)
    expected["head.bias"] = bias
    network.learn(descriptors, cut(changes, held, size, indexed), 0.7, 0.2, by_holders)
    for name in NAMES:
        torch.testing.assert_close(network.state()[name], expected[name], atol=1e-10, rtol=0)


def test_one_participant_by_hand() -> None:
    def tensor(values: Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    head = tensor([[1, 5], [-1, 5], [2, 5]])
    made = Hypernetwork(tensor([[2], [-1]]), tensor([1, 1]), head, tensor([0.5, 0, 1]), tensor([1]), centred=False)
    descriptor = tensor([3])
    # h = relu(2·3 + 1, -3 + 1) = (7, 0);  w = b + W h
    assert made.hidden(descriptor).tolist() == [7, 0]
    assert made.generate(descriptor).tolist() == [7.5, -7, 15]
    # Δ = (0.1, -, -0.3): the second entry was not held
    block = Block(torch.tensor([0, 2]), tensor([[0.1, -0.3]]), torch.ones(2, dtype=torch.float64))
    made.learn(descriptor.unsqueeze(0), [block], shared_rate=0.5, personal_rate=0.2, by_holders=True)
    # W += β Δ hᵀ: 0.2·0.1·7 = 0.14 and 0.2·(-0.3)·7 = -0.42;  b += 0.5·Δ
    torch.testing.assert_close(made.head, tensor([[1.14, 5.0], [-1.0, 5.0], [1.58, 5.0]]), atol=1e-14, rtol=0)
    torch.testing.assert_close(made.head_bias, tensor([0.55, 0, 0.85]), atol=1e-14, rtol=0)
    # Wᵀ Δ = 1·0.1 + 2·(-0.3) = -0.5 for the unit that is on:  A += β·(-0.5)·3,  a += β·(-0.5)
    torch.testing.assert_close(made.inner, tensor([[1.7], [-1.0]]), atol=1e-14, rtol=0)
    torch.testing.assert_close(made.inner_bias, tensor([0.9, 1]), atol=1e-14, rtol=0)


def test_one_participant_by_hand_with_the_average_client_as_the_centre() -> None:
    def tensor(values: Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    head = tensor([[1, 5], [-1, 5], [2, 5]])
    made = Hypernetwork(tensor([[2], [-1]]), tensor([1, 1]), head, tensor([0.5, 0, 1]), tensor([1]), centred=True)
    descriptor = tensor([3])
    # h(3) = (7, 0), h(1) = (3, 0), so f = (4, 0);  w = b + W f
    assert made.features(descriptor).tolist() == [4, 0]
    assert made.generate(descriptor).tolist() == [4.5, -4, 9]
    assert made.between(made.head_bias, descriptor, strength=0.25).tolist() == [1.5, -1, 3]
    assert made.between(tensor([0, 1, 2]), descriptor, strength=0.25).tolist() == [1, 0, 4]
    assert made.generate(tensor([1])).tolist() == made.between(made.head_bias, descriptor, 0).tolist() == [0.5, 0, 1]
    block = Block(torch.tensor([0, 2]), tensor([[0.1, -0.3]]), torch.ones(2, dtype=torch.float64))
    made.learn(descriptor.unsqueeze(0), [block], shared_rate=0.5, personal_rate=0.2, by_holders=True)
    # W += β Δ fᵀ: 0.2·0.1·4 = 0.08 and 0.2·(-0.3)·4 = -0.24
    torch.testing.assert_close(made.head, tensor([[1.08, 5.0], [-1.0, 5.0], [1.76, 5.0]]), atol=1e-14, rtol=0)
    torch.testing.assert_close(made.head_bias, tensor([0.55, 0, 0.85]), atol=1e-14, rtol=0)
    # Wᵀ Δ = -0.5 pulls on h(3) and, with the other sign, on h(1):  A += β·(-0.5·3 + 0.5·1),  a += β·(-0.5 + 0.5)
    torch.testing.assert_close(made.inner, tensor([[1.8], [-1.0]]), atol=1e-14, rtol=0)
    torch.testing.assert_close(made.inner_bias, tensor([1, 1]), atol=1e-14, rtol=0)


@given(problems(), st.floats(0, 1))
def test_a_strength_lies_between_the_average_client_and_oneself(
    problem: tuple[Hypernetwork, Tensor, Tensor, Tensor], strength: float
) -> None:
    network, descriptors, _, _ = problem
    own, average = network.generate(descriptors[0]), network.generate(network.average)
    expected = strength * own + (1 - strength) * average
    found = network.between(network.head_bias, descriptors[0], strength)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


@given(problems())
def test_generated_weights_move_towards_trained_ones(problem: tuple[Hypernetwork, Tensor, Tensor, Tensor]) -> None:
    """The other sign would move away."""
    network, descriptors, changes, held = problem
    if not changes.any():
        return
    before = torch.stack([network.generate(descriptor) for descriptor in descriptors])
    network.learn(descriptors, cut(changes, held, 100, False), 1e-4, 1e-4, by_holders=False)
    after = torch.stack([network.generate(descriptor) for descriptor in descriptors])
    assert float(((after - before) * changes).sum()) > 0


@pytest.mark.parametrize("by_holders", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_entries_that_nobody_held_stay_bitwise_as_they_are(by_holders: bool, indexed: bool) -> None:
    made = network(4, 5, 40, seed=3)
    generator = torch.Generator().manual_seed(0)
    held = torch.rand(3, 40, generator=generator) < 0.3
    changes = torch.randn(3, 40, generator=generator, dtype=torch.float64) * held
    nobody = ~held.any(dim=0)
    assert 5 < int(nobody.sum()) < 35
    weights, bias = made.head[nobody].clone(), made.head_bias[nobody].clone()
    others = made.head[~nobody].clone()
    made.learn(torch.ones(3, 4), cut(changes, held, 40, indexed), 1.0, 0.5, by_holders)
    assert torch.equal(made.head[nobody].view(torch.int64), weights.view(torch.int64))
    assert torch.equal(made.head_bias[nobody].view(torch.int64), bias.view(torch.int64))
    assert not bool((made.head[~nobody] == others).all(dim=1).any())


def test_a_unit_that_is_off_learns_nothing() -> None:
    made = network(2, 3, 4, seed=1)
    made.inner_bias.fill_(-100)
    before = {name: tensor.clone() for name, tensor in made.state().items()}
    changes = torch.ones(1, 4, dtype=torch.float64)
    made.learn(torch.ones(1, 2), cut(changes, changes.bool(), 4, False), 1.0, 1.0, by_holders=True)
    for name in ("inner.weight", "inner.bias", "head.weight"):
        assert torch.equal(made.state()[name], before[name])
    torch.testing.assert_close(made.head_bias, before["head.bias"] + 1)


def test_the_initial_network() -> None:
    target, average = torch.arange(3000, dtype=torch.float64), torch.ones(16)
    scales = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64).repeat_interleave(1000)

    def initial(seed: int) -> Hypernetwork:
        generator = torch.Generator().manual_seed(seed)
        made = Hypernetwork.initialised(8, target, average, centred=True, generator=generator)
        assert torch.equal(made.generate(torch.full((16,), 3.0)), target)  # for everybody
        made.scatter(scales, generator)
        return made

    made = initial(0)
    assert torch.equal(made.head_bias, target)
    assert made.head_bias is target  # one full-size vector, not two
    spread = made.head.view(3, -1).std(dim=1)
    assert spread[0] == 0
    torch.testing.assert_close(spread, torch.tensor([0, 0.5, 2.0], dtype=torch.float64), atol=0, rtol=0.05)
    assert made.inner.abs().max() <= 0.25  # 1/sqrt(16)
    assert made.inner.abs().max() > 0.2
    assert made.inner_bias.abs().max() <= 0.25
    again, other = initial(0), initial(1)
    for name in ("inner.weight", "inner.bias", "head.weight"):
        assert torch.equal(again.state()[name], made.state()[name])
        assert not torch.equal(other.state()[name], made.state()[name])
