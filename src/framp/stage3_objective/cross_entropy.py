"""Plain cross-entropy: L = L_CE."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.config import Config
from framp.messages import Prototypes, Submodel


@final
@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy on the client's own labels."""

    uses_prototypes: ClassVar[bool] = False

    @classmethod
    def configured(cls, config: Config) -> "CrossEntropy":
        """Take nothing from the configuration."""
        return cls()

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor, prototypes: Prototypes | None) -> Tensor:
        """Return the cross-entropy of a batch."""
        return F.cross_entropy(model.head(model.features(images)), labels)  # type: ignore[operator]

    def reparametrise(self, submodel: Submodel) -> None:
        """Show the weights as they are."""
        return
