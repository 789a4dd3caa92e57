"""FIARSE's objective: cross-entropy through a threshold that the gradient sees.

The network sees w·1[|w| ≥ θ], with θ the smallest magnitude of the submodel as it was received. With g the gradient of
what is seen, the weights follow 1[|w| ≥ θ]·g·(1 + 2θ|w| / (|w| + θ)²). A weight that falls below θ leaves the network
and freezes where it is.
"""

from dataclasses import dataclass
from typing import Any, final

import torch
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
        out[: self.maskable] *= self._kept(weights[: self.maskable].abs())

    def gradient(self, weights: Tensor, gradient: Tensor) -> None:
        """Multiply by 1[|w| ≥ θ]·(1 + 2θ|w| / (|w| + θ)²)."""
        magnitude = weights[: self.maskable].abs()
        factor = (2 * self.theta * magnitude).div_((magnitude + self.theta).square_()).add_(1)
        factor.nan_to_num_(nan=1.0)  # θ = 0 and w = 0: plain gradient descent
        gradient[: self.maskable] *= factor.mul_(self._kept(magnitude))

    def _kept(self, magnitude: Tensor) -> Tensor:
        """Return 1[|w| ≥ θ] as numbers: several times as fast as a mask of truth values."""
        return torch.ge(magnitude, self.theta, out=torch.empty_like(magnitude))


@final
@dataclass(frozen=True)
class ThresholdGradient(Plain):
    """Cross-entropy whose gradient includes how the threshold depends on the weights."""

    @classmethod
    def configured(cls, config: Config) -> "ThresholdGradient":
        """Take nothing from the configuration."""
        return cls()

    def loss(self, model: nn.Module, inputs: Any, labels: Tensor, known: Known) -> Tensor:
        """Return the cross-entropy of a batch."""
        return F.cross_entropy(model.head(model.features(inputs)), labels)  # type: ignore[operator]

    def reparametrise(self, submodel: Submodel) -> Threshold:
        """Take θ from the smallest magnitude that was received."""
        return Threshold(float(submodel.values.abs().min()), submodel.below)
