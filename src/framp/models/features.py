"""φ, the network whose mean features describe a client's data (section 4.1): 128 numbers leave the device."""

import torch
from torch import Tensor, nn

from framp import rng

DIMENSIONS = 128


class FeatureExtractor(nn.Sequential):
    """Three convolutions (32, 64, 128) with ReLU and pooling, then mean pooling; no norm."""

    def forward(self, images: Tensor) -> Tensor:
        """Return one vector an image."""
        maps: Tensor = super().forward(images)  # type: ignore[no-untyped-call]
        return maps.mean(dim=(2, 3))


def feature_extractor(channels: int, seed: int) -> FeatureExtractor:
    """Return φ as it starts."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.number(seed, rng.NOBODY, rng.NOBODY, "feature extractor"))
        for outputs in (32, 64, DIMENSIONS):
            convolution = nn.Conv2d(channels, outputs, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight)
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
            layers += [convolution, nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
            channels = outputs
    return FeatureExtractor(*layers)


def with_classifier(channels: int, classes: int, seed: int) -> nn.Sequential:
    """Return φ under a linear layer that tells the classes apart, to be trained with it."""
    extractor = feature_extractor(channels, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.number(seed, rng.NOBODY, rng.NOBODY, "classifier over features"))
        return nn.Sequential(extractor, nn.Linear(DIMENSIONS, classes))


def flattened(module: nn.Module) -> Tensor:
    """Return a copy of a module's parameters as one vector."""
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def load(module: nn.Module, vector: Tensor) -> None:
    """Give a module the parameters of a vector."""
    nn.utils.vector_to_parameters(vector.clone(), module.parameters())
