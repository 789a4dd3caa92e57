"""The full networks. A network of the user's own needs only `features(images)` and `head(features)`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from framp import rng
from framp.errors import ConfigError, ModelError, unknown
from framp.models.cnn import SmallCNN
from framp.models.exits import MultiExit, WithExits
from framp.models.resnet import ResNet18
from framp.settings import ModelConfig

Architecture = Callable[[], nn.Module]
"""Builds the full network, the same shape at every call; picklable where worker processes are used."""

NETWORKS: dict[str, Callable[[int, int, int, str], nn.Module]] = {"cnn": SmallCNN, "resnet18": ResNet18}


@dataclass(frozen=True)
class NamedArchitecture:
    """One of the package's networks, for a data set's channels and classes."""

    config: ModelConfig
    channels: int
    classes: int

    def __call__(self) -> nn.Module:
        """Build the network."""
        if self.config.name not in NETWORKS:
            raise ConfigError(unknown("model", self.config.name, NETWORKS))
        return NETWORKS[self.config.name](self.channels, self.classes, self.config.width, self.config.norm)


def blank(architecture: Architecture) -> nn.Module:
    """Build the network for its shape and its buffers, the same everywhere; the global generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return architecture()


def initialised(architecture: Architecture, seed: int) -> nn.Module:
    """Build the network with the parameters that `seed` stands for, leaving torch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.number(seed, rng.NOBODY, rng.NOBODY, "initial network"))
        module = architecture()
    for name in ("features", "head"):
        if not callable(getattr(module, name, None)):
            raise ModelError(
                f"{type(module).__name__} has no method '{name}'; "
                "a network offers features(images) and head(features), so that prototypes can be taken in between"
            )
    return module


@torch.no_grad()
def feature_width(module: nn.Module, image: tuple[int, ...], classes: int) -> int:
    """Return the length of the features that a network makes of images of some shape, and that its head takes."""
    module.eval()
    features = module.features(torch.zeros(2, *image, dtype=next(module.parameters()).dtype))  # type: ignore[operator]
    if features.ndim != 2:
        raise ModelError(
            f"{type(module).__name__}.features returns a tensor of {features.ndim} dimensions; "
            "it has to return one vector a sample, [batch, features]"
        )
    shape = tuple(module.head(features).shape)  # type: ignore[operator]
    if shape[:-1] != (2,) or shape[-1] < classes:
        raise ModelError(
            f"{type(module).__name__}.head returns a tensor {list(shape)} for 2 samples of {classes} classes; "
            f"it has to return one number a class, [batch, {classes}]"
        )
    return int(features.shape[1])


__all__ = [
    "NETWORKS",
    "Architecture",
    "MultiExit",
    "NamedArchitecture",
    "ResNet18",
    "SmallCNN",
    "WithExits",
    "blank",
    "feature_width",
    "initialised",
]
