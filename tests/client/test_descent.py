import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from framp.client.training import Descent
from framp.messages import LocalTraining


def steps(
    training: LocalTraining, mask: list[float] | None, start: list[float], *gradients: list[float]
) -> list[list[float]]:
    """The weights after each step."""
    weights = torch.tensor(start, dtype=torch.float64)
    step = Descent(training, None if mask is None else torch.tensor(mask, dtype=torch.float64))
    found: list[list[float]] = []
    for gradient in gradients:
        step(weights, torch.tensor(gradient, dtype=torch.float64))
        found.append(weights.tolist())
    return found


def test_plain_descent_by_hand() -> None:
    training = LocalTraining(1, 1, 0.5)
    assert steps(training, None, [1.0, 2.0], [2.0, -4.0], [1.0, 0.0]) == [[0.0, 4.0], [-0.5, 4.0]]
    assert steps(training, [1.0, 0.0], [1.0, 0.0], [2.0, -4.0]) == [[0.0, 0.0]]


def test_momentum_by_hand() -> None:
    """v = 2, then ½·2 + 4 = 5, then ½·5 + 0."""
    found = steps(LocalTraining(1, 1, 0.1, momentum=0.5), None, [1.0], [2.0], [4.0], [0.0])
    assert [row[0] for row in found] == pytest.approx([0.8, 0.3, 0.05], abs=1e-15)


def test_weight_decay_by_hand() -> None:
    """1 − 0.1·(2 + 0.5·1), then 0.75 − 0.1·(0 + 0.5·0.75)."""
    found = steps(LocalTraining(1, 1, 0.1, weight_decay=0.5), None, [1.0], [2.0], [0.0])
    assert [row[0] for row in found] == pytest.approx([0.75, 0.7125], abs=1e-15)


def test_clipping_by_hand() -> None:
    """The norm of (3, 4) is 5: it becomes 1; that of (0.3, 0.4) stays."""
    found = steps(LocalTraining(1, 1, 1.0, clip=1.0), None, [0.0, 0.0], [3.0, 4.0], [0.3, 0.4])
    assert found[0] == pytest.approx([-0.6, -0.8], abs=1e-6)
    assert found[1] == pytest.approx([-0.9, -1.2], abs=1e-6)


def test_only_the_submodels_gradient_counts_for_its_norm() -> None:
    found = steps(LocalTraining(1, 1, 1.0, clip=1.0), [1.0, 0.0, 1.0], [0.0] * 3, [3.0, 1000.0, 4.0])
    assert found[0] == pytest.approx([-0.6, 0.0, -0.8], abs=1e-6)
    assert found[0][1] == 0


def test_decay_is_not_clipped() -> None:
    found = steps(LocalTraining(1, 1, 1.0, weight_decay=0.5, clip=1.0), None, [10.0], [7.0])
    assert found[0][0] == pytest.approx(10 - (1 + 5), abs=1e-6)


@given(
    st.sampled_from([0.0, 0.5, 0.9]),
    st.sampled_from([0.0, 1e-3, 0.1]),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_it_is_torchs_own_descent(momentum: float, decay: float, clip: float, masked: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(6, generator=generator) < 0.6).double() if masked else torch.ones(6, dtype=torch.float64)
    start = torch.randn(6, generator=generator, dtype=torch.float64) * mask
    gradients = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    weights = start.clone()
    step = Descent(LocalTraining(1, 1, 0.1, False, momentum, decay, clip), mask if masked else None)
    reference = start.clone().requires_grad_()
    optimiser = torch.optim.SGD([reference], lr=0.1, momentum=momentum, weight_decay=decay)
    for gradient in gradients:
        step(weights, gradient.clone())
        reference.grad = gradient * mask
        if clip:
            torch.nn.utils.clip_grad_norm_([reference], clip)
        optimiser.step()
    torch.testing.assert_close(weights, reference.detach(), atol=1e-12, rtol=0)
    assert torch.equal(weights[mask == 0], torch.zeros(int((mask == 0).sum()), dtype=torch.float64))


def test_momentum_begins_anew_with_each_task() -> None:
    training = LocalTraining(1, 1, 1.0, momentum=0.9)
    assert steps(training, None, [0.0], [1.0]) == steps(training, None, [0.0], [1.0]) == [[-1.0]]


def test_momentum_carries_on_where_gradients_vanish() -> None:
    found = [row[0] for row in steps(LocalTraining(1, 1, 1.0, momentum=0.5), None, [0.0], [1.0], *[[0.0]] * 20)]
    assert all(later < earlier for earlier, later in pairwise(found))
    assert math.isclose(found[-1], -2, abs_tol=1e-5)


def test_the_weights_are_moved_in_place() -> None:
    weights: Tensor = torch.ones(2)
    Descent(LocalTraining(1, 1, 1.0), None)(weights, torch.ones(2))
    assert weights.tolist() == [0, 0]
