"""ScaleFL's objective: every exit learns the labels, and the earlier ones also learn from the last.

With exits 1..e of the client's own level, the deepest of them the teacher:

    L = [ Σ_{j<e} j·(CE_j + λ·KD_j) + e·CE_e ] / (e(e+1)/2),   KD_j = T²·KL( softmax(z_e/T) ‖ softmax(z_j/T) )
"""

from dataclasses import dataclass, replace
from math import floor
from typing import Any, final

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from framp.config import Config
from framp.stage3_objective.objective import Known, Plain


@final
@dataclass(frozen=True)
class ExitDistillation(Plain):
    """Cross-entropy at each exit, weighted by its depth, and distillation from the last exit to the others."""

    weight: float
    temperature: float
    starts_after: int
    """Distillation starts after so many rounds."""
    as_in_code: bool = False
    """As the authors' code has it: KL averaged over the classes too, and gradient also through the teacher."""
    distils: bool = True

    @classmethod
    def configured(cls, config: Config) -> "ExitDistillation":
        """Take the weight, the temperature and the start from the configuration."""
        exits = config.exits
        starts_after = floor(exits.distillation_start * config.rounds)
        return cls(exits.distillation, exits.temperature, starts_after, exits.distillation_form == "code")

    def in_round(self, round: int) -> "ExitDistillation":
        """Distil only once the exits have learned something to distil."""
        return replace(self, distils=round > self.starts_after)

    def loss(self, model: nn.Module, inputs: Any, labels: Tensor, known: Known) -> Tensor:
        """Return the loss of a batch over the exits that the submodel has."""
        logits: list[Tensor] = model.exit_logits(inputs)  # type: ignore[operator]
        last = len(logits)
        total = last * F.cross_entropy(logits[-1], labels)
        for number, early in enumerate(logits[:-1], start=1):
            term = F.cross_entropy(early, labels)
            if self.distils and self.weight > 0:
                term = term + self.weight * self.distillation(early, logits[-1])
            total = total + number * term
        return total / (last * (last + 1) / 2)

    def distillation(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return T²·KL(teacher ‖ student) of softened predictions."""
        target = F.log_softmax((teacher if self.as_in_code else teacher.detach()) / self.temperature, dim=1)
        found = F.log_softmax(student / self.temperature, dim=1)
        divergence = (target.exp() * (target - found)).sum(dim=1)
        mean = divergence.mean() / (teacher.shape[1] if self.as_in_code else 1)
        return self.temperature**2 * mean
