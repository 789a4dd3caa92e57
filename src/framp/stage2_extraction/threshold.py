"""Exact selection of the k entries of largest magnitude, at a few passes over the memory (equation 3).

A random sample brackets the k-th magnitude; one pass counts what lies above the bracket and collects what lies inside;
the exact threshold θ is found among those few. Blocks stay in the processor's cache. Should the bracket miss, the whole
vector is partitioned: the answer is always exact.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

_BLOCK = 1 << 16
_SAMPLE = 1 << 16
_DEVIATIONS = 4
"""Half the width of the bracket, in standard deviations of the sample's rank."""


def top_indices(weights: Tensor, k: int) -> Tensor:
    """Return the indices of the k largest magnitudes, ascending int32; of equal magnitudes the lower index wins."""
    values = np.ascontiguousarray(weights.detach().numpy())
    theta = kth_magnitude(values, k)
    ties_kept = k - sum(int(np.count_nonzero(magnitudes > theta)) for _, magnitudes in _blocks(values))
    indices = np.empty(k, dtype=np.int32)
    filled = 0
    for start, magnitudes in _blocks(values):
        kept = magnitudes >= theta
        ties = np.flatnonzero(magnitudes == theta)
        kept[ties[ties_kept:]] = False
        ties_kept -= min(ties_kept, len(ties))
        found = np.flatnonzero(kept)
        indices[filled : filled + len(found)] = found + start
        filled += len(found)
    if filled < k:
        raise ValueError("the weights hold values that are not a number")
    return torch.from_numpy(indices)


def _blocks(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the start and the magnitudes of each block; the next takes the place of the last."""
    magnitudes = np.empty(_BLOCK, dtype=values.dtype)
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        yield start, np.abs(block, out=magnitudes[: len(block)])


def kth_magnitude(values: np.ndarray, k: int) -> np.floating:
    """Return θ, the k-th largest of |values|."""
    if not 0 < k <= len(values):
        raise ValueError(f"k is {k}; it has to lie between 1 and {len(values)}")
    found = _kth_within_bracket(values, k) if len(values) > 4 * _SAMPLE else None
    if found is not None:
        return found
    return _kth_largest(np.abs(values), k)


def _kth_largest(magnitudes: np.ndarray, k: int) -> np.floating:
    found: np.floating = np.partition(magnitudes, len(magnitudes) - k)[len(magnitudes) - k]
    return found


def _kth_within_bracket(values: np.ndarray, k: int) -> np.floating | None:
    low, high = _bracket(values, k)
    few = 32 * k <= len(values)  # then the entries above the bracket are cheaper to collect than to tell apart
    above = 0
    inside = []
    flags, higher = np.empty(_BLOCK, dtype=bool), np.empty(_BLOCK, dtype=bool)
    for _, magnitude in _blocks(values):
        flag = np.greater_equal(magnitude, low, out=flags[: len(magnitude)])
        if not few:
            over = np.greater(magnitude, high, out=higher[: len(magnitude)])
            above += int(np.count_nonzero(over))
            np.not_equal(flag, over, out=flag)
        inside.append(magnitude[np.flatnonzero(flag)])
    candidates = np.concatenate(inside)
    if few:
        within = candidates <= high
        above = len(candidates) - int(np.count_nonzero(within))
        candidates = candidates[within]
    rank = k - above
    return _kth_largest(candidates, rank) if 1 <= rank <= len(candidates) else None


def _bracket(values: np.ndarray, k: int) -> tuple[np.floating, np.floating]:
    """Return two magnitudes that hold the k-th largest between them unless chance has it otherwise."""
    positions = np.random.Generator(np.random.Philox(key=len(values))).integers(0, len(values), _SAMPLE)
    sample = np.sort(np.abs(values[positions]))
    share = 1 - k / len(values)
    centre, spread = share * _SAMPLE, _DEVIATIONS * np.sqrt(share * (1 - share) * _SAMPLE) + _DEVIATIONS
    low, high = int(centre - spread), int(centre + spread)
    ends = sample.dtype.type(0), sample.dtype.type(np.inf)
    return sample[low] if low >= 0 else ends[0], sample[high] if high < _SAMPLE else ends[1]
