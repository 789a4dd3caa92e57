"""Representation alignment (section 4.3): L = L_CE + λ·L_R, where L_R pulls class means towards global prototypes.

Only the classes that are in the batch and have a global prototype count; before there
is any prototype the loss is plain cross-entropy.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.config import Config
from framp.errors import ConfigError, unknown
from framp.messages import Prototypes, Submodel
from framp.stage3_objective.prototypes import class_means

DISTANCES = ("mse", "squared", "euclidean")


@final
@dataclass(frozen=True)
class Aligned:
    """Cross-entropy plus λ times the distance of the batch's class means from the global prototypes."""

    weight: float = 0.1
    distance: str = "mse"
    reduction: str = "mean"
    uses_prototypes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.distance not in DISTANCES:
            raise ConfigError(unknown("alignment distance", self.distance, DISTANCES))

    @classmethod
    def configured(cls, config: Config) -> "Aligned":
        """Take λ, the distance and the reduction from the configuration."""
        alignment = config.alignment
        return cls(alignment.weight, alignment.distance, alignment.reduction)

    def loss(self, model: nn.Module, images: Tensor, labels: Tensor, prototypes: Prototypes | None) -> Tensor:
        """Return L_CE + λ·L_R of a batch."""
        features = model.features(images)  # type: ignore[operator]
        cross_entropy = F.cross_entropy(model.head(features), labels)  # type: ignore[operator]
        if prototypes is None:
            return cross_entropy
        return cross_entropy + self.weight * self.misalignment(features, labels, prototypes)

    def misalignment(self, features: Tensor, labels: Tensor, prototypes: Prototypes) -> Tensor:
        """Return L_R: the distance of class means and prototypes, over the classes that have both."""
        batch = class_means(features, labels, len(prototypes.counts))
        both = (batch.counts > 0) & (prototypes.counts > 0)
        if not bool(both.any()):
            return features.new_zeros(())
        squared = (batch.vectors[both] - prototypes.vectors[both]).square()
        if self.distance == "mse":
            distances = squared.mean(dim=1)
        elif self.distance == "squared":
            distances = squared.sum(dim=1)
        else:
            distances = torch.sqrt(squared.sum(dim=1) + 1e-12)
        return distances.mean() if self.reduction == "mean" else distances.sum()

    def reparametrise(self, submodel: Submodel) -> None:
        """Show the weights as they are."""
        return
