import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framp.stage1_generation.served import Served


def test_the_average_weighs_early_rounds_by_their_number_and_later_ones_as_configured() -> None:
    """Weights 1, 2/3, 1/2 (the mean in which round t weighs t) and then the configured 1/2: the start is forgotten."""
    followed = torch.zeros(3, dtype=torch.float64)
    served, found = Served(followed, 0.5), []
    for value in (3.0, 9.0, 1.0, 8.0, 1.0):
        followed.fill_(value)
        served.follow()
        found.append(float(served.vector[1]))
    assert found == pytest.approx([3, (3 + 2 * 9) / 3, (3 + 2 * 9 + 3 * 1) / 6, 6, 3.5], abs=1e-12)
    assert float(followed[0]) == 1
    assert {name: tensor.tolist() for name, tensor in served.state().items()} == {
        "served.vector": served.vector.tolist(),
        "served.rounds": 5,
    }


def test_without_an_average_it_is_the_vector_itself() -> None:
    followed = torch.zeros(3)
    served = Served(followed, 1.0)
    followed.fill_(7)
    served.follow()
    assert served.vector is followed
    assert served.state() == {}


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0, 0.99))
def test_the_average_lies_among_the_rounds(values: list[float], newest: float) -> None:
    followed = torch.zeros(1, dtype=torch.float64)
    served = Served(followed, newest)
    for value in values:
        followed.fill_(value)
        served.follow()
    assert min(values) - 1e-9 <= float(served.vector) <= max(values) + 1e-9
