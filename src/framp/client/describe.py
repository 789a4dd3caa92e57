"""A client's descriptor: v_n = mean of φ(x) over its training samples, with φ a random network (section 4.1).

φ is the same seeded, frozen network for every client; 128 numbers leave the device, once.
"""

import torch
from torch import Tensor, nn

from framp import rng
from framp.data.shard import Shard

DIMENSIONS = 128
_BATCH = 256


def feature_extractor(channels: int, seed: int) -> nn.Module:
    """Return φ: three convolutions (32, 64, 128) with ReLU and pooling, then mean pooling; no norm, no training."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.number(seed, rng.NOBODY, rng.NOBODY, "feature extractor"))
        for outputs in (32, 64, DIMENSIONS):
            convolution = nn.Conv2d(channels, outputs, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight)
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
            layers += [convolution, nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
            channels = outputs
    return nn.Sequential(*layers)


@torch.no_grad()
def describe(shard: Shard, seed: int) -> Tensor:
    """Return the mean feature of a client's samples."""
    extractor = feature_extractor(shard.images.shape[1], seed)
    total = torch.zeros(DIMENSIONS, dtype=torch.float64)
    for start in range(0, len(shard), _BATCH):
        images, _ = shard.batch(slice(start, start + _BATCH))
        total += extractor(images).mean(dim=(2, 3)).double().sum(dim=0)
    return (total / len(shard)).float()
