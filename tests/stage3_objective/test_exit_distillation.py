import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from framp.config import Config
from framp.stage3_objective import ExitDistillation, Known

LABELS = torch.tensor([0, 2])
KNOWN = Known(None, torch.ones(3, dtype=torch.bool))
FIRST = [[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]]
SECOND = [[0.0, 2.0, 0.0], [0.5, 0.5, 1.0]]
LAST = [[3.0, 0.0, 1.0], [0.0, -1.0, 2.0]]


class Exits(nn.Module):
    """Returns prepared logits at its exits."""

    def __init__(self, *logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def exit_logits(self, images: Tensor) -> list[Tensor]:
        return list(self.logits)


def softmax(row: list[float], temperature: float) -> list[float]:
    shares = [math.exp(logit / temperature) for logit in row]
    return [share / sum(shares) for share in shares]


def entropy(rows: list[list[float]]) -> float:
    """Cross-entropy by scalar loops."""
    return sum(-math.log(softmax(row, 1)[label]) for row, label in zip(rows, LABELS.tolist(), strict=True)) / len(rows)


def divergence(teacher: list[list[float]], student: list[list[float]], temperature: float) -> float:
    """T²·KL(teacher ‖ student) by scalar loops."""
    total = 0.0
    for wise, eager in zip(teacher, student, strict=True):
        pairs = zip(softmax(wise, temperature), softmax(eager, temperature), strict=True)
        total += sum(p * (math.log(p) - math.log(q)) for p, q in pairs)
    return temperature**2 * total / len(teacher)


def double(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_loss_by_hand() -> None:
    """Weights 1, 2 and 3 of 6."""
    model = Exits(double(FIRST), double(SECOND), double(LAST))
    found = ExitDistillation(0.05, 3.0, 0).loss(model, torch.empty(0), LABELS, KNOWN)
    first = entropy(FIRST) + 0.05 * divergence(LAST, FIRST, 3)
    second = entropy(SECOND) + 0.05 * divergence(LAST, SECOND, 3)
    assert float(found) == pytest.approx((first + 2 * second + 3 * entropy(LAST)) / 6, abs=1e-12)
    # two exits: 1 and 2 of 3; a single one is cross-entropy
    two = ExitDistillation(0.05, 3.0, 0).loss(Exits(double(FIRST), double(LAST)), torch.empty(0), LABELS, KNOWN)
    assert float(two) == pytest.approx((first + 2 * entropy(LAST)) / 3, abs=1e-12)
    one = ExitDistillation(0.05, 3.0, 0).loss(Exits(double(LAST)), torch.empty(0), LABELS, KNOWN)
    assert float(one) == pytest.approx(entropy(LAST), abs=1e-12)


def test_before_its_start_and_with_weight_zero_nothing_is_distilled() -> None:
    model = Exits(double(FIRST), double(SECOND), double(LAST))
    expected = (entropy(FIRST) + 2 * entropy(SECOND) + 3 * entropy(LAST)) / 6
    for objective in (ExitDistillation(0.05, 3.0, 10).in_round(10), ExitDistillation(0.0, 3.0, 0).in_round(1)):
        assert float(objective.loss(model, torch.empty(0), LABELS, KNOWN)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("rounds", "last_without"), [(100, 25), (10, 2), (3, 0), (7, 1), (1, 0)])
def test_distillation_starts_after_a_quarter_of_the_rounds(rounds: int, last_without: int) -> None:
    objective = ExitDistillation.configured(Config().with_values({"rounds": rounds}))
    assert objective.starts_after == last_without
    assert [objective.in_round(round).distils for round in range(1, rounds + 1)] == [
        round > last_without for round in range(1, rounds + 1)
    ]


def test_it_is_set_up_from_the_configuration() -> None:
    assert ExitDistillation.configured(Config().with_values({"rounds": 8})) == ExitDistillation(0.05, 3.0, 2)
    values = {
        "rounds": 8, "exits.distillation": 0.5, "exits.temperature": 2.0, "exits.distillation_start": 0.5,
        "exits.distillation_form": "code",
    }  # fmt: skip
    made = ExitDistillation.configured(Config().with_values(values))
    assert made == ExitDistillation(0.5, 2.0, 4, as_in_code=True)


@pytest.mark.parametrize("in_code", [False, True])
def test_the_teacher_is_taught_by_its_students_only_in_the_authors_code(in_code: bool) -> None:
    student, teacher = double(FIRST).requires_grad_(), double(LAST).requires_grad_()
    found = ExitDistillation(1.0, 3.0, 0, in_code).distillation(student, teacher)
    assert found.item() == pytest.approx(divergence(LAST, FIRST, 3) / (3 if in_code else 1), abs=1e-12)
    found.backward()  # type: ignore[no-untyped-call]
    assert student.grad is not None
    assert (teacher.grad is not None) == in_code


@given(st.integers(2, 5), st.integers(1, 4), st.floats(0.5, 5), st.integers(0, 10**6))
def test_distillation_is_never_negative_and_zero_between_equals(
    classes: int, samples: int, temperature: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    student, teacher = torch.randn(2, samples, classes, generator=generator, dtype=torch.float64)
    objective = ExitDistillation(1.0, temperature, 0)
    assert float(objective.distillation(teacher, teacher)) == pytest.approx(0, abs=1e-12)
    expected = divergence(teacher.tolist(), student.tolist(), temperature)
    assert float(objective.distillation(student, teacher)) == pytest.approx(expected, abs=1e-9)
    assert expected > -1e-12
