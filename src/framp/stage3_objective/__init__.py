"""Stage 3, representation alignment: what a client minimises on its submodel.

`objective.py` is the contract; each other file is one objective. It runs on the client.
"""

from typing import Any

from framp.stage3_objective.aligned import Aligned
from framp.stage3_objective.cross_entropy import CrossEntropy
from framp.stage3_objective.exit_distillation import ExitDistillation
from framp.stage3_objective.label_masked import LabelMasked
from framp.stage3_objective.objective import Known, Objective, Reparametrisation
from framp.stage3_objective.threshold_gradient import ThresholdGradient

OBJECTIVES: dict[str, Any] = {
    kind.__name__: kind for kind in (Aligned, CrossEntropy, ExitDistillation, LabelMasked, ThresholdGradient)
}
"""The objectives that a task can ask for by name; one of your own is added on both sides."""

__all__ = [
    "OBJECTIVES",
    "Aligned",
    "CrossEntropy",
    "ExitDistillation",
    "Known",
    "LabelMasked",
    "Objective",
    "Reparametrisation",
    "ThresholdGradient",
]
