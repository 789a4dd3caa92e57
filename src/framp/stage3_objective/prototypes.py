"""Class prototypes: P^c = mean of e(x) over the samples of class c (equation of section 4.3)."""

import torch
from torch import Tensor

from framp.messages import Prototypes


def class_sums(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the sum of features and the number of samples of each class; gradients flow through the sums."""
    sums = torch.zeros(classes, features.shape[1], dtype=features.dtype).index_add(0, labels, features)
    return sums, torch.bincount(labels, minlength=classes)


def class_means(features: Tensor, labels: Tensor, classes: int) -> Prototypes:
    """Return each class's mean feature; classes without a sample have count 0 and a vector of zeros."""
    sums, counts = class_sums(features, labels, classes)
    return Prototypes(sums / counts.clamp(min=1).unsqueeze(1), counts)
