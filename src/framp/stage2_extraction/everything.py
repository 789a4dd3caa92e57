"""No extraction: every client gets the whole model, as if each device could hold it (FedAvg)."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from framp.budgets import FULL, Budget
from framp.config import Config
from framp.stage2_extraction.extractor import Selection, Unlearned
from framp.stage2_extraction.network import Network


@final
@dataclass(frozen=True)
class Everything(Unlearned):
    """All entries. It grants every client the full budget, and its costs in bytes say so."""

    @classmethod
    def configured(cls, config: Config, network: Network) -> "Everything":
        """Take nothing from the configuration."""
        return cls()

    def granted(self, budget: Budget) -> Budget:
        """Grant the full model."""
        return FULL

    def select(self, weights: Tensor, budget: Budget, round: int, in_use: bool = False) -> Selection:
        """Choose all entries."""
        return Selection()
