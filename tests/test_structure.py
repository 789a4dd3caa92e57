import numpy as np
from torch import nn

from framp.data.kinds import Images
from framp.layout import ParameterLayout
from framp.models import SmallCNN
from framp.structure import Segment, flat
from framp.tracing import trace


def test_places_in_the_flat_vector_by_hand() -> None:
    layout = ParameterLayout.of(nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(4, 3, bias=False)))
    entry = layout.entries[1]
    assert (entry.start, entry.shape) == (1, (3, 4))
    found = flat(entry, [np.array([0, 2]), np.array([1, 3])])
    assert found.tolist() == [1 + 1, 1 + 3, 1 + 8 + 1, 1 + 8 + 3]


def test_counting_by_hand() -> None:
    layout = ParameterLayout.of(SmallCNN(3, 5, 4))
    structure = trace(SmallCNN(3, 5, 4), layout, Images(3, 8, 8))
    assert structure.count(layout, structure.widths) == layout.maskable
    assert structure.count(layout, [1, 2, 3]) == 9 * (3 * 1 + 1 * 2 + 2 * 3) + 3 * 5 + 5
    assert Segment(None, 3).block == 1
