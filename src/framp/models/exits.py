"""A network that can also end early: pooling and a linear layer after each of its units (ScaleFL)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from framp.errors import ModelError


class MultiExit(nn.Module):
    """A network with an exit after each unit; the last exit is the network's own head.

    A submodel that lacks an exit's parameters does without the exit, and without what lies behind its last one.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        widths, classifier = getattr(network, "unit_widths", None), getattr(network, "classifier", None)
        methods = all(callable(getattr(network, name, None)) for name in ("units", "pooled"))
        if not widths or not methods or not isinstance(classifier, nn.Linear):
            raise ModelError(
                f"{type(network).__name__} cannot end early; it has to offer units(), a list of the steps from its "
                "inputs to its last maps, unit_widths, their numbers of channels, pooled(maps), the features of what "
                "a step returns, and classifier, a linear layer"
            )
        self.network = network
        dtype = classifier.weight.dtype
        self.exits = nn.ModuleList(nn.Linear(width, classifier.out_features, dtype=dtype) for width in widths[:-1])
        self.depth = len(widths)
        self.active: tuple[int, ...] = tuple(range(1, self.depth + 1))

    def adopt(self, names: Collection[str]) -> None:
        """Use the exits whose parameters are there."""
        early = [number for number in range(1, self.depth) if f"exits.{number - 1}.weight" in names]
        self.active = (*early, *([self.depth] if "network.classifier.weight" in names else []))

    def features(self, inputs: Any) -> Tensor:
        """Encode inputs by all units up to the last exit that is there."""
        return self._pooled(inputs, (self.active[-1],))[0]

    def head(self, features: Tensor) -> Tensor:
        """Classify features by the last exit that is there."""
        return self._exit(self.active[-1], features)

    def exit_logits(self, inputs: Any) -> list[Tensor]:
        """Return the logits of all exits that are there, the shallowest first."""
        pooled = self._pooled(inputs, self.active)
        return [self._exit(depth, features) for depth, features in zip(self.active, pooled, strict=True)]

    def forward(self, inputs: Any) -> Tensor:
        """Return the last exit's logits."""
        return self.head(self.features(inputs))

    def _pooled(self, inputs: Any, depths: tuple[int, ...]) -> list[Tensor]:
        maps, found = inputs, []
        units: list[nn.Module] = self.network.units()  # type: ignore[operator]
        for depth, unit in enumerate(units[: depths[-1]], start=1):
            maps = unit(maps)
            if depth in depths:
                found.append(self.network.pooled(maps))  # type: ignore[operator]
        return found

    def _exit(self, depth: int, features: Tensor) -> Tensor:
        layer = self.network.classifier if depth == self.depth else self.exits[depth - 1]
        logits: Tensor = layer(features)  # type: ignore[operator]
        return logits


@dataclass(frozen=True)
class WithExits:
    """The multi-exit form of an architecture; its trunk starts as the architecture itself does."""

    architecture: Callable[[], nn.Module]

    def __call__(self) -> MultiExit:
        """Build the network."""
        return MultiExit(self.architecture())
