"""The full networks. A network of the user's own needs only `features(inputs)` and `head(features)`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from framp import rng
from framp.data.kinds import Images, Kind, Nodes
from framp.errors import ConfigError, ModelError, unknown
from framp.models.cnn import SmallCNN
from framp.models.exits import MultiExit, WithExits
from framp.models.gcn import GCN
from framp.models.resnet import ResNet18
from framp.settings import ModelConfig

Architecture = Callable[[], nn.Module]
"""Builds the full network, the same shape at every call; picklable where worker processes are used."""

IMAGE_NETWORKS: dict[str, Callable[[int, int, int, str], nn.Module]] = {"cnn": SmallCNN, "resnet18": ResNet18}
GRAPH_NETWORKS: dict[str, Callable[[int, int, int, int, float], nn.Module]] = {"gcn": GCN}


@dataclass(frozen=True)
class NamedArchitecture:
    """One of the package's networks, for a kind of samples and a number of classes."""

    config: ModelConfig
    kind: Kind
    classes: int

    def __call__(self) -> nn.Module:
        """Build the network."""
        model = self.config
        if model.name not in (*IMAGE_NETWORKS, *GRAPH_NETWORKS):
            raise ConfigError(unknown("model", model.name, (*IMAGE_NETWORKS, *GRAPH_NETWORKS)))
        match self.kind:
            case Images() if model.name in IMAGE_NETWORKS:
                return IMAGE_NETWORKS[model.name](self.kind.channels, self.classes, model.width, model.norm)
            case Nodes() if model.name in GRAPH_NETWORKS:
                build = GRAPH_NETWORKS[model.name]
                return build(self.kind.features, self.classes, model.layers, model.hidden, model.dropout)
        what, known = ("images", IMAGE_NETWORKS) if isinstance(self.kind, Images) else ("a graph", GRAPH_NETWORKS)
        raise ConfigError(f"model.name '{model.name}' does not take {what}; set it to {' or '.join(known)}")


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
                "a network offers features(inputs) and head(features), so that prototypes can be taken in between"
            )
    return module


@torch.no_grad()
def feature_width(module: nn.Module, kind: Kind, classes: int) -> int:
    """Return the length of the features that a network makes of some kind of samples, and that its head takes."""
    module.eval()
    features = module.features(kind.blank(next(module.parameters()).dtype))  # type: ignore[operator]
    if features.ndim != 2:
        raise ModelError(
            f"{type(module).__name__}.features returns a tensor of {features.ndim} dimensions; "
            "it has to return one vector a sample, [batch, features]"
        )
    if len(features) != 2:
        raise ModelError(
            f"{type(module).__name__}.features returns {len(features)} vectors for 2 samples; "
            "it has to return one vector a sample, of a graph graph.asked(values): those of the nodes asked about"
        )
    shape = tuple(module.head(features).shape)  # type: ignore[operator]
    if shape[:-1] != (2,) or shape[-1] < classes:
        raise ModelError(
            f"{type(module).__name__}.head returns a tensor {list(shape)} for 2 samples of {classes} classes; "
            f"it has to return one number a class, [batch, {classes}]"
        )
    return int(features.shape[1])


__all__ = [
    "GCN",
    "GRAPH_NETWORKS",
    "IMAGE_NETWORKS",
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
