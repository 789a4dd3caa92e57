"""A client's descriptor: v_n = mean of φ(x) over its training samples (section 4.1).

φ is the same for every client: a seeded random network, or one that the participants train as they go along.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from framp import rng
from framp.data.samples import Samples
from framp.messages import Describe, ExtractorTraining
from framp.models.features import DIMENSIONS, feature_extractor, flattened, load, with_classifier

_BATCH = 256


@torch.no_grad()
def describe(samples: Samples, message: Describe) -> Tensor:
    """Return the mean feature of a client's samples."""
    extractor = feature_extractor(samples.kind, message.seed)
    if message.extractor is not None:
        load(extractor, message.extractor)
    total = torch.zeros(DIMENSIONS, dtype=torch.float64)
    for inputs, _ in samples.in_order(_BATCH):
        total += extractor(inputs).double().sum(dim=0)
    return (total / len(samples)).float()


def train_extractor(samples: Samples, classes: int, asked: ExtractorTraining, batch: int, seed: int) -> Tensor:
    """Train φ and its classifier on a client's own labels; return what changed."""
    model = with_classifier(samples.kind, classes, 0)
    load(model, asked.parameters)
    optimiser = torch.optim.SGD(model.parameters(), lr=asked.rate)
    order = rng.stream(seed, rng.NOBODY, rng.NOBODY, "batches of the feature extractor")
    for _ in range(asked.epochs):
        for inputs, labels in samples.shuffled(batch, order):
            optimiser.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return flattened(model) - asked.parameters
