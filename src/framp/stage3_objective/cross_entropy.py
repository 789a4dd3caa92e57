"""Plain cross-entropy: L = L_CE."""

from dataclasses import dataclass
from typing import Any, final

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.config import Config
from framp.stage3_objective.objective import Known, Plain


@final
@dataclass(frozen=True)
class CrossEntropy(Plain):
    """Cross-entropy on the client's own labels."""

    @classmethod
    def configured(cls, config: Config) -> "CrossEntropy":
        """Take nothing from the configuration."""
        return cls()

    def loss(self, model: nn.Module, inputs: Any, labels: Tensor, known: Known) -> Tensor:
        """Return the cross-entropy of a batch."""
        return F.cross_entropy(model.head(model.features(inputs)), labels)  # type: ignore[operator]
