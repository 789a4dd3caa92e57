from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framp.budgets import FULL, Budget, assign, group_sizes
from framp.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "name", "fraction"),
    [
        ("1/64", "1/64", Fraction(1, 64)),
        ("0.04", "0.04", Fraction(1, 25)),
        (0.04, "0.04", Fraction(1, 25)),
        (0.1, "0.1", Fraction(1, 10)),
        (1, "1", Fraction(1)),
        (1.0, "1.0", Fraction(1)),
        (" 1/3 ", "1/3", Fraction(1, 3)),
        ("1e-3", "1e-3", Fraction(1, 1000)),
        (".36", ".36", Fraction(9, 25)),
    ],
)
def test_a_fraction_is_read_exactly_and_keeps_its_name(text: str | float, name: str, fraction: Fraction) -> None:
    budget = Budget.parse(text)
    assert budget == Budget(name, fraction)


@pytest.mark.parametrize("text", ["", "abc", "1/0", "1/2/3", "nan", "inf", "-inf", "one", "1,5", "0x1"])
def test_what_is_no_number_is_named(text: str) -> None:
    message = f"budget '{text}' is not a number; write a fraction such as 1/16 or 0.25"
    with pytest.raises(ConfigError) as caught:
        Budget.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["0", "0/5", "-1/2", "65/64", "1.0000001", 2, -0.5, 0.0])
def test_what_is_no_share_of_a_model_is_refused(text: str | float) -> None:
    with pytest.raises(ConfigError) as caught:
        Budget.parse(text)
    assert str(caught.value) == f"budget '{text}' is outside (0, 1]; a budget is a fraction of the full model"


def test_limits_of_the_papers_network() -> None:
    """k = int(d·γ) for ResNet-18 with 10 and with 100 classes."""
    ten = {"1/64": 174443, "1/16": 697772, "1/4": 2791090, "1": 11164362}
    ten |= {".04": 446574, ".16": 1786297, ".36": 4019170, ".64": 7145191}
    hundred = {"1/64": 175164, "1/16": 700658, "1/4": 2802633, "1": 11210532}
    hundred |= {".04": 448421, ".16": 1793685, ".36": 4035791, ".64": 7174740}
    assert {name: Budget.parse(name).limit(11_164_362) for name in ten} == ten
    assert {name: Budget.parse(name).limit(11_210_532) for name in hundred} == hundred


def test_a_limit_is_not_a_rounded_float() -> None:
    assert Budget.parse("0.29").limit(100) == 29
    assert int(0.29 * 100) == 28  # what a float would have made of it
    assert Budget.parse("1/3").limit(3 * 10**15) == 10**15
    assert FULL.limit(17) == 17


@given(st.fractions(min_value=0, max_value=1).filter(bool), st.integers(0, 10**9))
def test_a_limit_is_the_floor(fraction: Fraction, maskable: int) -> None:
    budget = Budget.parse(str(fraction))
    assert budget.fraction == fraction
    assert budget.limit(maskable) == floor(fraction * maskable)
    assert 0 <= budget.limit(maskable) <= maskable


shares = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any).map(lambda w: [x / sum(w) for x in w])


@given(shares, st.integers(1, 5000))
def test_groups_hold_everybody_at_their_shares(shares: list[float], clients: int) -> None:
    sizes = group_sizes(shares, clients)
    assert sum(sizes) == clients
    assert all(abs(size - share * clients) < 1 for size, share in zip(sizes, shares, strict=True))


def test_group_sizes_by_hand() -> None:
    assert group_sizes([0.25] * 4, 100) == [25] * 4
    assert group_sizes([0.5, 0.5], 5) == [3, 2]  # a tie goes to the earlier group
    assert group_sizes([0.1, 0.2, 0.7], 10) == [1, 2, 7]
    assert group_sizes([0.34, 0.33, 0.33], 7) == [3, 2, 2]  # 2.38, 2.31, 2.31
    assert group_sizes([0.0, 1.0], 3) == [0, 3]
    assert group_sizes([1 / 3] * 3, 10) == [4, 3, 3]


@given(shares, st.integers(1, 300))
def test_groups_are_contiguous_in_the_order_of_the_list(shares: list[float], clients: int) -> None:
    group = assign([FULL] * len(shares), shares, clients)
    assert group.shape == (clients,)
    assert (np.diff(group) >= 0).all()
    np.testing.assert_array_equal(np.bincount(group, minlength=len(shares)), group_sizes(shares, clients))
