"""Stage 1, client-aware full-size model generation: whose full model is it, and how does it learn?

`backbone.py` is the contract; `shared.py` and `generated.py` are the two backbones; `hypernetwork.py` is H(v; φ),
`blockwise.py` the same for large models (`cuts.py` cuts them), `descriptors.py` its inputs, and `served.py` what is put
to use. It runs on the server.
"""

from framp.stage1_generation.backbone import Backbone
from framp.stage1_generation.blockwise import BlockwiseHypernetwork
from framp.stage1_generation.descriptors import Descriptors, Features, OneHot, TrainedFeatures, feature_seed
from framp.stage1_generation.generated import Generated
from framp.stage1_generation.hypernetwork import Hypernetwork
from framp.stage1_generation.shared import Shared, SharedWhereMoved

__all__ = [
    "Backbone",
    "BlockwiseHypernetwork",
    "Descriptors",
    "Features",
    "Generated",
    "Hypernetwork",
    "OneHot",
    "Shared",
    "SharedWhereMoved",
    "TrainedFeatures",
    "feature_seed",
]
