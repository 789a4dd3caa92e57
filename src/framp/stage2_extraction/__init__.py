"""Stage 2, adaptive submodel extraction: which parameters fit a client's budget this round.

`extractor.py` is the contract; each other part is one extractor. It runs on the server.
"""

from framp.stage2_extraction.cost_topk import CostTopK
from framp.stage2_extraction.depth_width import DepthWidth
from framp.stage2_extraction.everything import Everything
from framp.stage2_extraction.extractor import Extractor, Selection
from framp.stage2_extraction.global_topk import GlobalTopK
from framp.stage2_extraction.layerwise_topk import LayerwiseTopK
from framp.stage2_extraction.learned_score import LearnedScore
from framp.stage2_extraction.width import WidthPrefix, WidthRolling

__all__ = [
    "CostTopK",
    "DepthWidth",
    "Everything",
    "Extractor",
    "GlobalTopK",
    "LayerwiseTopK",
    "LearnedScore",
    "Selection",
    "WidthPrefix",
    "WidthRolling",
]
