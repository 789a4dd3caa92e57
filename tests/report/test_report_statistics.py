import math

import pytest

from framp.report.statistics import estimate, paired_difference

#: Student's t at 97.5 %; closed forms for one and two degrees of freedom.
T1 = math.tan(math.pi * 0.475)
T2 = 0.95 * math.sqrt(2 / (1 - 0.95**2))


def test_one_value_has_no_interval() -> None:
    assert estimate([0.4]).mean == 0.4
    assert estimate([0.4]).half_width is None


def test_interval_of_two_and_three_values() -> None:
    two = estimate([1.0, 3.0])
    assert two.mean == 2
    assert two.half_width == pytest.approx(T1 * math.sqrt(2) / math.sqrt(2), rel=1e-12)
    three = estimate([1.0, 2.0, 3.0])
    assert three.half_width == pytest.approx(T2 / math.sqrt(3), rel=1e-12)
    assert three.half_width == pytest.approx(2.4841377, abs=1e-6)


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert estimate([0.3, 0.3, 0.3]).half_width == 0


def test_paired_difference_by_hand() -> None:
    # differences 2, 3, 1: mean 2, deviation 1, t = 2·√3; with two degrees of freedom p = 1 - t/√(2 + t²)
    found = paired_difference([3.0, 5.0, 7.0], [1.0, 2.0, 6.0])
    assert found.values == (2, 3, 1)
    assert found.mean == 2
    assert found.half_width == pytest.approx(T2 / math.sqrt(3), rel=1e-12)
    assert found.p_value == pytest.approx(1 - math.sqrt(12) / math.sqrt(14), rel=1e-9)


def test_the_sign_does_not_change_p() -> None:
    first, second = [3.0, 5.0, 7.0], [1.0, 2.0, 6.0]
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert back.mean == -there.mean
    assert back.p_value == there.p_value


def test_p_is_scipys() -> None:
    from scipy import stats

    first, second = [0.51, 0.49, 0.57, 0.52, 0.50], [0.47, 0.50, 0.51, 0.44, 0.49]
    assert paired_difference(first, second).p_value == pytest.approx(stats.ttest_rel(first, second).pvalue)


def test_pairing_counts_not_the_spread_between_seeds() -> None:
    found = paired_difference([0.2, 0.5, 0.8], [0.1, 0.4, 0.71])
    assert found.p_value is not None
    assert found.p_value < 0.01


def test_no_test_for_one_pair_nor_for_equal_differences() -> None:
    assert paired_difference([0.5], [0.4]).p_value is None
    assert paired_difference([0.2, 0.3], [0.1, 0.2]).p_value is None


def test_unequal_numbers_of_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_difference([0.2, 0.3], [0.1])
