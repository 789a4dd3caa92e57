import math

import pytest
import torch
from torch import Tensor, nn

from framp.config import Config
from framp.messages import Prototypes, Submodel
from framp.stage3_objective import Aligned, CrossEntropy, Known, ThresholdGradient


class Identity(nn.Module):
    """Features and logits are the input itself."""

    def features(self, rows: Tensor) -> Tensor:
        return rows

    def head(self, features: Tensor) -> Tensor:
        return features

    def forward(self, rows: Tensor) -> Tensor:
        return rows


def test_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]], dtype=torch.float64)
    labels = torch.tensor([0, 2])
    first = math.log(math.exp(1) + math.exp(2) + 1) - 1
    second = math.log(2 + math.exp(3)) - 3
    prototypes = Prototypes(torch.ones(3, 3).double(), torch.ones(3, dtype=torch.int64))
    for objective in (CrossEntropy(), ThresholdGradient()):
        for seen in (None, prototypes):
            loss = objective.loss(Identity(), logits, labels, Known(seen, torch.ones(3, dtype=torch.bool)))
            assert float(loss) == pytest.approx((first + second) / 2, abs=1e-14)


def test_only_alignment_uses_prototypes() -> None:
    assert not CrossEntropy.uses_prototypes
    assert not ThresholdGradient.uses_prototypes
    assert Aligned.uses_prototypes


def test_only_fiarse_shows_the_network_other_weights() -> None:
    submodel = Submodel(2, None, torch.tensor([1.0, -0.5]), torch.zeros(1))
    assert CrossEntropy().reparametrise(submodel) is None
    shown = torch.zeros(3)
    ThresholdGradient().reparametrise(submodel).shown(torch.tensor([0.6, -0.4, 0.1]), out=shown)
    torch.testing.assert_close(shown, torch.tensor([0.6, 0.0, 0.1]))


def test_objectives_are_set_up_from_the_configuration() -> None:
    config = Config().with_values(
        {"alignment.weight": 0.2, "alignment.distance": "euclidean", "alignment.reduction": "sum"}
    )
    assert Aligned.configured(config) == Aligned(0.2, "euclidean", "sum")
    assert CrossEntropy.configured(config) == CrossEntropy()
    assert ThresholdGradient.configured(config) == ThresholdGradient()
