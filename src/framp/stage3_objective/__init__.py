"""Stage 3, representation alignment: what a client minimises on its submodel.

`objective.py` is the contract; each other file is one objective. It runs on the client.
"""

from framp.stage3_objective.aligned import Aligned
from framp.stage3_objective.cross_entropy import CrossEntropy
from framp.stage3_objective.objective import Objective, Reparametrisation
from framp.stage3_objective.threshold_gradient import ThresholdGradient

__all__ = ["Aligned", "CrossEntropy", "Objective", "Reparametrisation", "ThresholdGradient"]
