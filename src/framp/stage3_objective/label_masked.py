"""HeteroFL's objective: cross-entropy over the client's own classes.

The logits of classes that the client's training data do not have are set to 0 (not to −∞, which would leave them out)
before the softmax. Their rows of the output layer get no gradient, so the client tells which classes it has, and the
server's mean of a row is over the participants that have its class.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.config import Config
from framp.stage3_objective.objective import Known, Plain


@final
@dataclass(frozen=True)
class LabelMasked(Plain):
    """Cross-entropy with the logits of foreign classes held at 0."""

    tells_classes: ClassVar[bool] = True

    @classmethod
    def configured(cls, config: Config) -> "LabelMasked":
        """Take nothing from the configuration."""
        return cls()

    def loss(self, model: nn.Module, inputs: Any, labels: Tensor, known: Known) -> Tensor:
        """Return the masked cross-entropy of a batch."""
        logits = model.head(model.features(inputs))  # type: ignore[operator]
        return F.cross_entropy(logits.masked_fill(~known.classes, 0.0), labels)
