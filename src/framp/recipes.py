"""The table of methods: each is a recipe of three parts, and none has code of its own outside its parts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from framp.config import Config
from framp.data.kinds import Kind
from framp.errors import ConfigError, unknown
from framp.layout import ParameterLayout
from framp.models import Architecture, WithExits
from framp.stage1_generation import (
    Backbone,
    Descriptors,
    Features,
    Generated,
    OneHot,
    Shared,
    SharedWhereMoved,
    TrainedFeatures,
)
from framp.stage2_extraction import (
    CostTopK,
    DepthWidth,
    Everything,
    Extractor,
    GlobalTopK,
    LayerwiseTopK,
    LearnedScore,
    WidthPrefix,
    WidthRolling,
)
from framp.stage2_extraction.network import Network
from framp.stage3_objective import (
    Aligned,
    CrossEntropy,
    ExitDistillation,
    LabelMasked,
    Objective,
    ThresholdGradient,
)


class BackbonePart(Protocol):
    """A kind of backbone that can be set up from a configuration and an initial network."""

    def configured(
        self, config: Config, initial: Tensor, layout: ParameterLayout, descriptors: Descriptors | None
    ) -> Backbone:
        """Return the backbone."""


class DescriptorsPart(Protocol):
    """A kind of descriptors that can be set up from a configuration, what the clients sent, and what their data are."""

    def from_data(self) -> bool:
        """Return whether clients have to send features of their data."""

    def configured(self, config: Config, raw: Tensor, kind: Kind, classes: int) -> Descriptors:
        """Return the descriptors."""


class ExtractorPart(Protocol):
    """A kind of extractor that can be set up from a configuration, for a network."""

    def configured(self, config: Config, network: Network) -> Extractor:
        """Return the extractor."""


class ObjectivePart(Protocol):
    """A kind of objective that can be set up from a configuration."""

    def configured(self, config: Config) -> Objective:
        """Return the objective."""


@dataclass(frozen=True)
class Recipe:
    """One method."""

    backbone: BackbonePart
    descriptors: DescriptorsPart | None
    extractor: ExtractorPart
    objective: ObjectivePart
    summary: str
    form: Callable[[Architecture], Architecture] | None = None
    """What the method makes of the network; None: it leaves it as it is."""

    def network(self, architecture: Architecture) -> Architecture:
        """Return the form of a network that the method trains."""
        return architecture if self.form is None else self.form(architecture)

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """Return the names of the backbone, its descriptors ("" for none), the extractor and the objective."""
        names = [
            getattr(part, "__name__", "") for part in (self.backbone, self.descriptors, self.extractor, self.objective)
        ]
        return names[0], names[1], names[2], names[3]

    @property
    def wants_features(self) -> bool:
        """Whether clients have to send features of their data."""
        return self.descriptors is not None and self.descriptors.from_data()


RECIPES: dict[str, Recipe] = {
    #                                  1 generation          2 extraction  3 local objective
    "framp": Recipe(Generated, Features, GlobalTopK, Aligned, "the paper's parts; its settings: cifar10, cifar100"),
    "framp-no-alignment": Recipe(Generated, Features, GlobalTopK, CrossEntropy, "ablation w/o RA"),
    "framp-no-personalisation": Recipe(Shared, None, GlobalTopK, Aligned, "ablation w/o Per"),
    "framp-neither": Recipe(Shared, None, GlobalTopK, CrossEntropy, "ablation w/o Both"),
    "framp-layerwise": Recipe(Generated, Features, LayerwiseTopK, Aligned, "TopK within each weight tensor"),
    "framp-cost": Recipe(Generated, Features, CostTopK, Aligned, "TopK by magnitude and cost, within a budget of work"),
    "framp-mlp": Recipe(Generated, Features, LearnedScore, Aligned, "entries by a learned score (our reading)"),
    "framp-onehot": Recipe(Generated, OneHot, GlobalTopK, Aligned, "descriptors that say only who the client is"),
    "framp-update": Recipe(
        Generated, TrainedFeatures, GlobalTopK, Aligned, "descriptors from a feature extractor that clients train"
    ),
    "fiarse": Recipe(SharedWhereMoved, None, GlobalTopK, ThresholdGradient, "importance-aware submodel extraction"),
    "heterofl": Recipe(Shared, None, WidthPrefix, LabelMasked, "the first channels of every layer"),
    "fedrolex": Recipe(Shared, None, WidthRolling, LabelMasked, "a window of channels that rolls round by round"),
    "scalefl": Recipe(
        Shared, None, DepthWidth, ExitDistillation, "fewer layers and channels, an exit at each depth", WithExits
    ),
    "fedavg": Recipe(Shared, None, Everything, CrossEntropy, "everybody trains the full model, budgets ignored"),
}


def find(name: str) -> Recipe:
    """Return a recipe by its name."""
    if name not in RECIPES:
        raise ConfigError(unknown("recipe", name, RECIPES))
    return RECIPES[name]
