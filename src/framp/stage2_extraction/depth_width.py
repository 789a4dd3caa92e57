"""Shallower and narrower networks (ScaleFL): the first units of a multi-exit network, the first channels of each.

Which depth and width a budget gets is an input that the paper finds by search. Here it is, of the widest networks that
fit at each depth, the one of largest depth^1.5 · width with a width below 1; the full network for a budget of 1.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from torch import Tensor, nn

from framp.budgets import Budget
from framp.config import Config
from framp.errors import BudgetError, ModelError
from framp.layout import ParameterLayout
from framp.models import MultiExit, blank
from framp.stage2_extraction.extractor import Selection, Unlearned
from framp.stage2_extraction.slices import Slices
from framp.structure import Network, Structure


@dataclass(frozen=True)
class Level:
    """A depth, the exits on the way, and a width."""

    depth: int
    exits: tuple[int, ...]
    ratio: Fraction


@final
@dataclass(frozen=True)
class DepthWidth(Unlearned):
    """Levels of a multi-exit network; each trained size is a level, and the levels' depths are the exits."""

    layout: ParameterLayout
    depths: tuple[Structure, ...]
    """What each depth uses, with its own exit alone."""
    exits: tuple[int, ...]
    """The depths of the trained sizes."""

    @classmethod
    def configured(cls, config: Config, network: Network) -> "DepthWidth":
        """Trace the network at each depth, and choose the exits for the configured budgets."""
        model = blank(network.architecture)
        if not isinstance(model, MultiExit):
            raise ModelError(f"{type(model).__name__} has no exits; wrap its architecture in framp.models.WithExits")
        depths = tuple(network.structure(_ending(depth)) for depth in range(1, model.depth + 1))
        free = cls(network.layout, depths, tuple(range(1, model.depth + 1)))
        budgets = [Budget.parse(name) for name in config.federation.budgets]
        exits = sorted({free.level(budget, others=False).depth for budget in budgets})
        return cls(network.layout, depths, tuple(exits))

    def granted(self, budget: Budget) -> Budget:
        """Keep to the client's budget."""
        self.level(budget)
        return budget

    def level(self, budget: Budget, others: bool = True) -> Level:
        """Choose a budget's level; `others`: with the other levels' exits on the way."""
        limit = budget.limit(self.layout.maskable)
        found = []
        for depth in self.exits:
            exits = tuple(number for number in self.exits if number <= depth) if others else (depth,)
            ratio = self._slices(exits).largest(limit)
            if ratio is not None:
                found.append(Level(depth, exits, ratio))
        if not found:
            raise BudgetError(
                f"budget {budget.name} of a model with {self.layout.maskable} parameters holds {limit} of them, and its "
                "shallowest network of one channel a layer has more; raise the budget or model.width"
            )
        if budget.fraction == 1:
            return found[-1]
        narrow = [level for level in found if level.ratio < 1]
        return max(narrow or found, key=lambda level: (level.depth**1.5 * float(level.ratio), level.depth))

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose the network of the budget's level."""
        level = self.level(budget)
        slices = self._slices(level.exits)
        return slices.cut([np.arange(width) for width in slices.widths(level.ratio)])

    def _slices(self, exits: tuple[int, ...]) -> Slices:
        return Slices(_merged([self.depths[depth - 1] for depth in exits]), self.layout)


def _ending(depth: int):  # type: ignore[no-untyped-def]
    def run(module: nn.Module, images: Tensor) -> Tensor:
        assert isinstance(module, MultiExit)
        module.active = (depth,)
        return module(images)  # type: ignore[no-any-return]

    return run


def _merged(structures: list[Structure]) -> Structure:
    raise NotImplementedError
