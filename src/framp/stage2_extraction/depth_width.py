"""Shallower and narrower networks (ScaleFL): the first units of a multi-exit network, the first channels of each.

Which depth and width a budget gets is an input that the paper finds by search. Here it is, of the widest networks that
fit at each depth, the one of largest depth^1.5 · width with a width below 1; the full network for a budget of 1.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, final

import numpy as np
from torch import Tensor, nn

from framp.budgets import Budget
from framp.config import Config
from framp.errors import BudgetError, ModelError
from framp.models import MultiExit, blank
from framp.stage2_extraction.extractor import Selection, Unlearned
from framp.stage2_extraction.network import Network
from framp.stage2_extraction.slices import Slices
from framp.tracing import Run


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

    slices: Slices
    used: tuple[tuple[bool, ...], ...]
    """Which entries each depth uses, with its own exit alone."""
    exits: tuple[int, ...]
    """The depths at which a level may end."""
    _levels: dict[Budget, Level] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def configured(cls, config: Config, network: Network) -> "DepthWidth":
        """Trace the network at each depth, and choose the exits for the configured budgets."""
        model = blank(network.architecture)
        if not isinstance(model, MultiExit):
            raise ModelError(f"{type(model).__name__} has no exits; wrap its architecture in framp.models.WithExits")
        slices = Slices(network.structure(_all_exits), network.layout).tried(network)
        depths = tuple(range(1, model.depth + 1))
        anywhere = cls(slices, tuple(network.structure(_exit(depth)).used for depth in depths), depths)
        budgets = [Budget.parse(name) for name in config.federation.budgets]
        return replace(anywhere, exits=tuple(sorted({anywhere.level(budget, 1).depth for budget in budgets})))

    def granted(self, budget: Budget) -> Budget:
        """Keep to the client's budget."""
        if budget not in self._levels:
            self._levels[budget] = self.level(budget)
        return budget

    def level(self, budget: Budget, most_exits: int | None = None) -> Level:
        """Choose a budget's level: a depth, with the exits on the way (or only the last of them), and a width."""
        limit = self.limit(budget)
        fitting = []
        for depth in self.exits:
            exits = tuple(exit for exit in self.exits if exit <= depth)[-(most_exits or len(self.exits)) :]
            ratio = self.through(exits).largest(limit)
            if ratio is not None:
                fitting.append(Level(depth, exits, ratio))
        if not fitting:
            raise BudgetError(
                f"budget {budget.name} holds {limit} parameters of the network without exits, and its shallowest "
                "network of one channel a layer has more; raise the budget or model.width (of a gcn model.hidden)"
            )
        narrower = [level for level in fitting if level.ratio < 1]
        if budget.fraction == 1 or not narrower:
            return fitting[-1]
        return max(narrower, key=lambda level: (level.depth**1.5 * float(level.ratio), level.depth))

    def limit(self, budget: Budget) -> int:
        """Return ⌊γ·d⌋, d that of the network without early exits: what other methods get for the same budget.

        The full budget holds the full network with its exits.
        """
        whole = self.through((len(self.used),))
        return self.slices.layout.maskable if budget.fraction == 1 else budget.limit(whole.count(Fraction(1)))

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose the network of the budget's level."""
        level = self._levels[self.granted(budget)]
        slices = self.through(level.exits)
        return slices.cut([np.arange(width) for width in slices.widths(level.ratio)])

    def through(self, exits: tuple[int, ...]) -> Slices:
        """Return the networks that end at the last of some exits."""
        used = tuple(any(entry) for entry in zip(*(self.used[depth - 1] for depth in exits), strict=True))
        return replace(self.slices, structure=replace(self.slices.structure, used=used))


def _all_exits(module: nn.Module, inputs: Any) -> list[Tensor]:
    assert isinstance(module, MultiExit)
    return module.exit_logits(inputs)


def _exit(depth: int) -> Run:
    def run(module: nn.Module, inputs: Any) -> list[Tensor]:
        assert isinstance(module, MultiExit)
        module.active = (depth,)
        return [module(inputs)]

    return run
