import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from framp.stage2_extraction import threshold
from framp.stage2_extraction.threshold import kth_magnitude, top_indices

LARGE = 4 * threshold._SAMPLE + 4321
"""Above this length the k-th magnitude is bracketed by a sample."""

DTYPES = (np.float32, np.float64)
TIED = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, 1e-45, -1e-45, 5e-324, 1e-310, 3e38])


def reference(values: np.ndarray, k: int) -> list[int]:
    """The indices of the k largest magnitudes, the lower index first where magnitudes tie: by sorting pairs."""
    order = sorted(range(len(values)), key=lambda j: (-abs(float(values[j])), j))
    return sorted(order[:k])


def arrays(dtype: type[np.floating]) -> st.SearchStrategy[np.ndarray]:
    anything = st.floats(width=32 if dtype is np.float32 else 64, allow_nan=False)
    elements = st.one_of(anything, TIED.map(dtype).map(float))
    return hnp.arrays(dtype, st.integers(1, 60), elements=elements, fill=st.nothing())


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_the_largest_magnitudes_of_any_vector(dtype: type[np.floating], data: st.DataObject) -> None:
    values = data.draw(arrays(dtype))
    for k in range(1, len(values) + 1):
        indices = top_indices(torch.from_numpy(values), k)
        assert indices.dtype == torch.int32
        assert indices.tolist() == reference(values, k)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_a_bracketed_threshold_is_the_same(dtype: type[np.floating], data: st.DataObject) -> None:
    values = data.draw(arrays(dtype))
    k = data.draw(st.integers(1, len(values)))
    exact = np.sort(np.abs(values))[len(values) - k]
    found = threshold._kth_within_bracket(values, k)
    assert found is None or (found == exact and found.dtype == values.dtype)
    assert kth_magnitude(values, k) == exact


def check_large(values: np.ndarray, k: int) -> None:
    order = np.lexsort((np.arange(len(values)), -np.abs(values)))  # by magnitude, then by index
    np.testing.assert_array_equal(top_indices(torch.from_numpy(values), k).numpy(), np.sort(order[:k]))


def large(name: str, dtype: type[np.floating]) -> np.ndarray:
    generator = np.random.default_rng(5)
    values = generator.standard_normal(LARGE)
    match name:
        case "ascending":
            values = np.sort(values)
        case "by magnitude":
            values = values[np.argsort(-np.abs(values))]
        case "constant":
            values = np.full(LARGE, -0.25)
        case "zeros":
            values = np.where(np.arange(LARGE) % 2, 0.0, -0.0)
        case "two values":
            values = np.where(np.arange(LARGE) % 3, 0.5, -2.0)
        case "heavy ties":
            values = np.round(values, 1)
        case "mostly zeros":
            values[generator.random(LARGE) < 0.9] = 0
        case "denormals":
            values = values * (1e-44 if dtype is np.float32 else 1e-322)
        case "infinities":
            values[::7] = np.where(np.arange(len(values[::7])) % 2, np.inf, -np.inf)
    return values.astype(dtype)


NAMES = ["normal", "ascending", "by magnitude", "constant", "zeros", "two values", "heavy ties", "mostly zeros"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*NAMES, "denormals", "infinities"])
def test_large_vectors(name: str, dtype: type[np.floating]) -> None:
    values = large(name, dtype)
    order = np.lexsort((np.arange(LARGE), -np.abs(values)))
    for k in (1, 2, LARGE // 64, LARGE // 3, LARGE // 2, LARGE - 1, LARGE):
        indices = top_indices(torch.from_numpy(values), k).numpy()
        np.testing.assert_array_equal(indices, np.sort(order[:k]))


@pytest.mark.parametrize("rank", [(0.0, 0.1), (0.9, 1.0), (0.5, 0.5), (1.0, 1.0), (0.0, 0.0), (0.0, 1.0)])
def test_a_bracket_that_misses_changes_nothing(rank: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    values = large("heavy ties", np.float32)
    asked = []

    def wrong(values: np.ndarray, k: int) -> tuple[np.floating, np.floating]:
        asked.append(k)
        magnitudes = np.sort(np.abs(values))
        low, high = (magnitudes[int(share * (len(values) - 1))] for share in rank)
        return low, high

    monkeypatch.setattr(threshold, "_bracket", wrong)
    for k in (1, 1000, LARGE // 3, LARGE - 1):
        check_large(values, k)
    assert asked == [1, 1000, LARGE // 3, LARGE - 1]


def test_the_bracket_holds_the_threshold_of_ordinary_weights() -> None:
    values = large("normal", np.float32)
    for k in (LARGE // 64, LARGE // 4, LARGE // 2):
        assert threshold._kth_within_bracket(values, k) == np.sort(np.abs(values))[LARGE - k]


def test_selection_neither_changes_nor_keeps_the_weights() -> None:
    weights = torch.tensor([3.0, -1.0, 2.0, -4.0], requires_grad=True)
    assert top_indices(weights, 2).tolist() == [0, 3]
    assert weights.tolist() == [3, -1, 2, -4]
    strided = torch.tensor([1.0, 9.0, 5.0, 9.0, 3.0, 9.0])[::2]
    assert top_indices(strided, 2).tolist() == [1, 2]


@pytest.mark.parametrize("k", [0, -1, 4])
def test_a_rank_outside_the_vector_is_an_error(k: int) -> None:
    with pytest.raises(ValueError, match=f"k is {k}; it has to lie between 1 and 3"):
        kth_magnitude(np.ones(3), k)
