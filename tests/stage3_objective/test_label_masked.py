import math

import pytest
import torch
from torch import Tensor, nn

from framp.config import Config
from framp.stage3_objective import Aligned, CrossEntropy, ExitDistillation, Known, LabelMasked, ThresholdGradient


class Head(nn.Module):
    """Features are the input; logits a linear layer of them."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(2, 3).double()

    def features(self, rows: Tensor) -> Tensor:
        return rows

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


class Identity(nn.Module):
    """Features and logits are the input itself."""

    def features(self, rows: Tensor) -> Tensor:
        return rows

    def head(self, features: Tensor) -> Tensor:
        return features


def known(*classes: bool) -> Known:
    return Known(None, torch.tensor(classes))


def test_foreign_logits_are_zero_not_left_out() -> None:
    logits = torch.tensor([[1.0, 50.0, 2.0], [0.5, -7.0, 3.0]], dtype=torch.float64)
    first = math.log(math.exp(1) + 1 + math.exp(2)) - 1
    second = math.log(math.exp(0.5) + 1 + math.exp(3)) - 3
    loss = LabelMasked().loss(Identity(), logits, torch.tensor([0, 2]), known(True, False, True))
    assert float(loss) == pytest.approx((first + second) / 2, abs=1e-14)


def test_with_all_classes_it_is_cross_entropy() -> None:
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 1, 0])
    everything = known(True, True, True)
    found = LabelMasked().loss(Identity(), logits, labels, everything)
    assert float(found) == float(CrossEntropy().loss(Identity(), logits, labels, everything))


def test_rows_of_foreign_classes_get_no_gradient() -> None:
    model = Head()
    rows = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = LabelMasked().loss(model, rows, torch.tensor([0, 2, 2, 0]), known(True, False, True))
    loss.backward()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert not parameter.grad[1].any()
        assert bool(parameter.grad[[0, 2]].all())


def test_only_it_tells_the_classes() -> None:
    assert LabelMasked.tells_classes
    assert not any(other.tells_classes for other in (Aligned, CrossEntropy, ExitDistillation, ThresholdGradient))
    assert not LabelMasked.uses_prototypes
    made = LabelMasked.configured(Config())
    assert made.in_round(3) == made == LabelMasked()
