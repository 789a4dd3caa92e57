"""φ, the network whose mean features describe a client's data (section 4.1): 128 numbers leave the device."""

import torch
from torch import Tensor, nn

from framp import rng
from framp.data.graph import Graph
from framp.data.kinds import Kind, Nodes
from framp.models.gcn import GraphLayer

DIMENSIONS = 128


class ImageFeatures(nn.Sequential):
    """Three convolutions (32, 64, 128) with ReLU and pooling, then mean pooling; no norm."""

    def forward(self, images: Tensor) -> Tensor:
        """Return one vector an image."""
        maps: Tensor = super().forward(images)  # type: ignore[no-untyped-call]
        return maps.mean(dim=(2, 3))


class NodeFeatures(nn.Sequential):
    """Two graph convolutions with ReLU."""

    def forward(self, graph: Graph) -> Tensor:
        """Return one vector for each node that is asked about."""
        found: Graph = super().forward(graph)  # type: ignore[no-untyped-call]
        return found.asked(found.x)


def feature_extractor(kind: Kind, seed: int) -> ImageFeatures | NodeFeatures:
    """Return φ for some kind of samples, as it starts."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.number(seed, rng.NOBODY, rng.NOBODY, "feature extractor"))
        if isinstance(kind, Nodes):
            return NodeFeatures(GraphLayer(kind.features, DIMENSIONS, 0.0), GraphLayer(DIMENSIONS, DIMENSIONS, 0.0))
        layers: list[nn.Module] = []
        channels = kind.channels
        for outputs in (32, 64, DIMENSIONS):
            convolution = nn.Conv2d(channels, outputs, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight)
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
            layers += [convolution, nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)]
            channels = outputs
        return ImageFeatures(*layers)


def with_classifier(kind: Kind, classes: int, seed: int) -> nn.Sequential:
    """Return φ under a linear layer that tells the classes apart, to be trained with it."""
    extractor = feature_extractor(kind, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.number(seed, rng.NOBODY, rng.NOBODY, "classifier over features"))
        return nn.Sequential(extractor, nn.Linear(DIMENSIONS, classes))


def flattened(module: nn.Module) -> Tensor:
    """Return a copy of a module's parameters as one vector."""
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def load(module: nn.Module, vector: Tensor) -> None:
    """Give a module the parameters of a vector."""
    nn.utils.vector_to_parameters(vector.clone(), module.parameters())
