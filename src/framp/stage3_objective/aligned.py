"""Representation alignment (section 4.3): L = L_CE + λ·L_R; before there is any prototype, plain cross-entropy.

The paper's L_R is a distance that pulls a batch's class means towards the global prototypes, over the classes that have
both. The other one, "head", aligns the client's head instead: it has to tell all global prototypes apart, also those
of classes that the client does not hold and would otherwise forget.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.config import Config
from framp.messages import Prototypes
from framp.stage3_objective.objective import Known, Plain
from framp.stage3_objective.prototypes import class_means


@final
@dataclass(frozen=True)
class Aligned(Plain):
    """Cross-entropy plus λ times the misalignment with the global prototypes."""

    weight: float
    distance: str
    reduction: str = "mean"
    uses_prototypes: ClassVar[bool] = True

    @classmethod
    def configured(cls, config: Config) -> "Aligned":
        """Take λ, the distance and the reduction from the configuration."""
        alignment = config.alignment
        return cls(alignment.weight, alignment.distance, alignment.reduction)

    def loss(self, model: nn.Module, inputs: Any, labels: Tensor, known: Known) -> Tensor:
        """Return L_CE + λ·L_R of a batch."""
        features = model.features(inputs)  # type: ignore[operator]
        cross_entropy = F.cross_entropy(model.head(features), labels)  # type: ignore[operator]
        prototypes = known.prototypes
        if prototypes is None:
            return cross_entropy
        if self.distance == "head":
            return cross_entropy + self.weight * self.confusion(model, prototypes)
        return cross_entropy + self.weight * self.misalignment(features, labels, prototypes)

    def confusion(self, model: nn.Module, prototypes: Prototypes) -> Tensor:
        """Return L_R of the head: its cross-entropy on the global prototypes, over the classes that have one."""
        classes = prototypes.counts.nonzero().squeeze(1)
        logits = model.head(prototypes.vectors[classes])  # type: ignore[operator]
        return F.cross_entropy(logits, classes, reduction=self.reduction)

    def misalignment(self, features: Tensor, labels: Tensor, prototypes: Prototypes) -> Tensor:
        """Return the paper's L_R: the distance of class means and prototypes, over the classes that have both."""
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
