"""Stage 2, adaptive submodel extraction: which parameters fit a client's budget this round.

`extractor.py` is the contract; each other part is one extractor. It runs on the server.
"""

from framp.stage2_extraction.everything import Everything
from framp.stage2_extraction.extractor import Extractor
from framp.stage2_extraction.global_topk import GlobalTopK

__all__ = ["Everything", "Extractor", "GlobalTopK"]
