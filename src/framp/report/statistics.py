"""Means over seeds, how sure they are, and differences of methods that ran on the same seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean, and half the width of its confidence interval; one value alone has no interval."""

    values: tuple[float, ...]
    mean: float
    half_width: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"mean": self.mean, "half_width": self.half_width, "values": list(self.values)}


@dataclass(frozen=True)
class Difference(Estimate):
    """A mean of paired differences, and the two-sided p value of "there is no difference"."""

    p_value: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return super().to_dict() | {"p_value": self.p_value}


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean with its 95 % confidence interval by Student's t."""
    return Estimate(tuple(values), fmean(values), _half_width(values))


def paired_difference(values: Sequence[float], reference: Sequence[float]) -> Difference:
    """Compare two methods seed by seed: mean of the differences, interval and paired t-test.

    Differences that are all equal leave the test without a scale; it has no p value then.
    """
    differences = [value - other for value, other in zip(values, reference, strict=True)]
    half_width = _half_width(differences)
    return Difference(tuple(differences), fmean(differences), half_width, _p_value(differences))


def _half_width(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    from scipy import stats

    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    return quantile * stdev(values) / math.sqrt(len(values))


def _p_value(differences: Sequence[float]) -> float | None:
    if len(differences) < 2 or stdev(differences) <= 1e-12:  # equal but for rounding
        return None
    from scipy import stats

    statistic = fmean(differences) * math.sqrt(len(differences)) / stdev(differences)
    return 2 * float(stats.t.sf(abs(statistic), len(differences) - 1))
