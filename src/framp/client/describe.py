"""A client's descriptor: v_n = mean of φ(x) over its training samples (section 4.1).

φ is the same for every client: a seeded random network, or one that the participants train as they go along.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from framp import rng
from framp.data.shard import Shard
from framp.messages import Describe, ExtractorTraining
from framp.models.features import DIMENSIONS, feature_extractor, flattened, load, with_classifier

_BATCH = 256


@torch.no_grad()
def describe(shard: Shard, message: Describe) -> Tensor:
    """Return the mean feature of a client's samples."""
    extractor = feature_extractor(shard.images.shape[1], message.seed)
    if message.extractor is not None:
        load(extractor, message.extractor)
    total = torch.zeros(DIMENSIONS, dtype=torch.float64)
    for start in range(0, len(shard), _BATCH):
        images, _ = shard.batch(slice(start, start + _BATCH))
        total += extractor(images).double().sum(dim=0)
    return (total / len(shard)).float()


def train_extractor(shard: Shard, classes: int, asked: ExtractorTraining, batch: int, seed: int) -> Tensor:
    """Train φ and its classifier on a client's own labels; return what changed."""
    model = with_classifier(shard.images.shape[1], classes, 0)
    load(model, asked.parameters)
    optimiser = torch.optim.SGD(model.parameters(), lr=asked.rate)
    order = rng.stream(seed, rng.NOBODY, rng.NOBODY, "batches of the feature extractor")
    for _ in range(asked.epochs):
        for rows in torch.split(torch.from_numpy(order.permutation(len(shard))), batch):
            images, labels = shard.batch(rows)
            optimiser.zero_grad()
            F.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return flattened(model) - asked.parameters
