"""FIARSE's objective: cross-entropy through a threshold that the gradient sees.

The network sees w·1[|w| ≥ θ], with θ the smallest magnitude of the submodel as it was received. With g the gradient of
what is seen, the weights follow 1[|w| ≥ θ]·g·(1 + 2θ|w| / (|w| + θ)²). A weight that falls below θ leaves the network
and freezes where it is.
"""

from dataclasses import dataclass
from typing import final

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.config import Config
from framp.messages import Submodel
from framp.stage3_objective.objective import Known, Plain


@final
@dataclass(frozen=True)
class Threshold:
    """The indicator 1[|w| ≥ θ] over the maskable entries, and its part in the gradient."""

    theta: float
    maskable: int

    def shown(self, weights: Tensor, out: Tensor) -> None:
        """Write w where |w| ≥ θ and zero elsewhere; what lies above the maskable entries is shown as it is."""
        out.copy_(weights)
        out[: self.maskable][weights[: self.maskable].abs() < self.theta] = 0

    def gradient(self, weights: Tensor, gradient: Tensor) -> None:
        """Multiply by 1[|w| ≥ θ]·(1 + 2θ|w| / (|w| + θ)²)."""
        magnitude = weights[: self.maskable].abs()
        factor = 1 + 2 * self.theta * magnitude / (magnitude + self.theta).square()
        factor[magnitude < self.theta] = 0
        factor.nan_to_num_(nan=1.0)  # θ = 0 and w = 0: plain gradient descent
        gradient[: self.maskable] *= factor


@final
@dataclass(frozen=True)
class ThresholdGradient(Plain):
    """Cross-entropy whose gradient includes how the threshold depends on the weights."""

    @classmethod
    def configured(cls, config: Config) -> "ThresholdGradient":
        """Take nothing from the configuration."""
        return cls()

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor, known: Known) -> Tensor:
        """Return the cross-entropy of a batch."""
        return F.cross_entropy(model.head(model.features(images)), labels)  # type: ignore[operator]

    def reparametrise(self, submodel: Submodel) -> Threshold:
        """Take θ from the smallest magnitude that was received."""
        return Threshold(float(submodel.values.abs().min()), submodel.below)
