import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from framp.budgets import Budget
from framp.client.training import train
from framp.client.workspace import Workspace
from framp.data import Shard
from framp.messages import LocalTraining, Submodel, Task
from framp.stage3_objective import ThresholdGradient
from framp.stage3_objective.threshold_gradient import Threshold


def factor(weight: float, theta: float) -> float:
    """The factor on one weight's gradient."""
    gradient = torch.ones(1, dtype=torch.float64)
    Threshold(theta, 1).gradient(torch.tensor([weight], dtype=torch.float64), gradient)
    return float(gradient)


def test_the_factor_by_hand() -> None:
    assert factor(0.2, 0.2) == pytest.approx(1.5, abs=1e-15)
    assert factor(-0.2, 0.2) == pytest.approx(1.5, abs=1e-15)
    assert factor(0.6, 0.2) == pytest.approx(1 + 2 * 0.2 * 0.6 / 0.8**2, abs=1e-15)
    assert factor(2e6, 0.2) == pytest.approx(1, abs=1e-6)
    assert factor(0.19, 0.2) == 0
    assert factor(0.0, 0.2) == 0
    assert factor(0.7, 0.0) == 1
    assert factor(0.0, 0.0) == 1  # θ = 0: plain gradient descent


@given(st.floats(-1e6, 1e6), st.floats(0, 1e3))
def test_the_factor_lies_between_one_and_one_and_a_half(weight: float, theta: float) -> None:
    found = factor(weight, theta)
    if abs(weight) < theta:
        assert found == 0
    else:
        assert 1 <= found <= 1.5 + 1e-12


def test_it_is_the_gradient_of_the_smooth_threshold() -> None:
    """The product rule on w·m(|w|), with ∂m/∂|w| = 2θ/(|w|+θ)² on active weights."""
    weight, theta, incoming = -0.35, 0.2, 1.7
    by_rule = incoming * (1.0 + weight * math.copysign(1, weight) * 2 * theta / (abs(weight) + theta) ** 2)
    gradient = torch.tensor([incoming, 5.0], dtype=torch.float64)
    Threshold(theta, 1).gradient(torch.tensor([weight, 0.0], dtype=torch.float64), gradient)
    assert gradient.tolist() == [pytest.approx(by_rule, abs=1e-15), 5.0]


def test_what_is_shown() -> None:
    weights = torch.tensor([0.5, -0.2, 0.19, 0.0, -0.3, 0.01])
    shown = torch.full((6,), 9.0)
    Threshold(float(torch.tensor(0.2)), 5).shown(weights, out=shown)
    assert torch.equal(shown, torch.tensor([0.5, -0.2, 0, 0, -0.3, 0.01]))
    assert torch.equal(weights, torch.tensor([0.5, -0.2, 0.19, 0.0, -0.3, 0.01]))


class Softmax(nn.Module):
    """Softmax regression: two pixels, three classes, and a scale of the logits that always travels."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.scale = nn.Parameter(torch.ones(1))
        self.double()

    def features(self, images: Tensor) -> Tensor:
        return images.flatten(1)

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.scale * self.linear(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


def transcribed(
    weights: list[float], theta: float, rows: list[list[float]], labels: list[int], rate: float, steps: int
) -> list[float]:
    """FIARSE's client on softmax regression: W (3x2), b (3), scale; plain loops over scalars."""
    weights = list(weights)
    for _ in range(steps):
        active = [1.0 if abs(w) >= theta else 0.0 for w in weights[:9]]
        seen = [w * m for w, m in zip(weights[:9], active, strict=True)]
        scale = weights[9]
        gradient = [0.0] * 10
        for row, label in zip(rows, labels, strict=True):
            inner = [seen[2 * c] * row[0] + seen[2 * c + 1] * row[1] + seen[6 + c] for c in range(3)]
            total = sum(math.exp(scale * z) for z in inner)
            for c in range(3):
                error = (math.exp(scale * inner[c]) / total - (1.0 if c == label else 0.0)) / len(rows)
                gradient[2 * c] += error * scale * row[0]
                gradient[2 * c + 1] += error * scale * row[1]
                gradient[6 + c] += error * scale
                gradient[9] += error * inner[c]
        for j in range(9):
            magnitude = abs(weights[j])
            weights[j] -= rate * active[j] * gradient[j] * (1 + 2 * theta * magnitude / (magnitude + theta) ** 2)
        weights[9] -= rate * gradient[9]
    return weights


def test_three_steps_of_the_client_are_the_transcribed_ones() -> None:
    images = torch.tensor([[0, 255], [255, 51], [102, 204], [255, 255], [0, 0]], dtype=torch.uint8).view(5, 1, 1, 2)
    labels = torch.tensor([0, 1, 2, 1, 0])
    shard = Shard(images, labels, torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
    indices = torch.tensor([0, 2, 3, 5, 6, 8], dtype=torch.int32)
    values = torch.tensor([0.9, -0.2, 0.7, -0.21, 0.205, 0.4], dtype=torch.float64)
    submodel = Submodel(9, indices, values, torch.tensor([1.3], dtype=torch.float64))
    training, steps, rate = LocalTraining(3, 5, 0.5), 3, 0.5
    task = Task(1, 0, 1, Budget.parse("2/3"), submodel, ThresholdGradient(), training, None, 0)
    workspace = Workspace(Softmax, 3)
    update = train(task, shard, workspace)

    start = [0.0] * 9 + [1.3]
    for index, value in zip(indices.tolist(), values.tolist(), strict=True):
        start[index] = value
    rows = [[float(x) / 255 for x in image.flatten()] for image in images]
    trained = transcribed(start, 0.2, rows, labels.tolist(), rate, steps)
    found = (update.values + submodel.values).tolist()
    assert found == pytest.approx([trained[j] for j in indices.tolist()], abs=1e-12)
    assert float(update.always + submodel.always) == pytest.approx(trained[9], abs=1e-12)
    assert [trained[j] for j in range(9) if j not in indices.tolist()] == [0, 0, 0]

    # the case holds what it is meant to: a weight that left the network and stayed where it was when it left
    two = transcribed(start, 0.2, rows, labels.tolist(), rate, 2)
    left = [j for j in indices.tolist() if abs(trained[j]) < 0.2]
    assert left
    assert any(two[j] == trained[j] != start[j] for j in left)
    # what the network sees at the end is the thresholded weights, and zeros outside the submodel
    expected = [w if abs(w) >= 0.2 else 0.0 for w in trained[:9]]
    assert workspace.weights[:9].tolist() == pytest.approx(expected, abs=1e-12)
    assert [w == 0 for w in workspace.weights[:9].tolist()] == [w == 0 for w in expected]


def test_the_full_budget_with_a_zero_weight_is_plain_descent() -> None:
    submodel = Submodel(3, None, torch.tensor([0.5, 0.0, -2.0]), torch.empty(0))
    threshold = ThresholdGradient().reparametrise(submodel)
    assert threshold.theta == 0
    gradient = torch.tensor([1.0, 2.0, 3.0])
    threshold.gradient(submodel.values, gradient)
    assert gradient.tolist() == [1, 2, 3]
