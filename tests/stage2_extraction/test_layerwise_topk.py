import torch
from hypothesis import given
from hypothesis import strategies as st

from framp.budgets import Budget
from framp.config import Config
from framp.data.kinds import Images
from framp.layout import Entry, ParameterLayout
from framp.models import SmallCNN
from framp.stage2_extraction import LayerwiseTopK
from framp.stage2_extraction.network import Network
from framp.stage2_extraction.threshold import top_indices

ENTRIES = (Entry("a", (4,), 0), Entry("b", (2, 1), 4), Entry("c", (2,), 6))
WEIGHTS = torch.tensor([0.1, -0.9, 0.3, -0.2, 5.0, 6.0, 0.0, 0.01])


def chosen(name: str) -> list[int] | None:
    selection = LayerwiseTopK(ENTRIES).select(WEIGHTS, Budget.parse(name), 4)
    assert (selection.always, selection.shapes, selection.class_rows) == (None, None, None)
    found: list[int] | None = None if selection.indices is None else selection.indices.tolist()
    return found


def test_the_largest_of_each_tensor_by_hand() -> None:
    assert chosen("1/2") == [1, 2, 5, 7]
    assert chosen("3/4") == [1, 2, 3, 5, 7]
    assert chosen("1") is None


def test_what_would_keep_nothing_keeps_one_while_there_is_room() -> None:
    assert chosen("1/4") == [1, 5]  # one of the first by its share; of two in all, one is left for the second
    assert chosen("3/8") == [1, 5, 7]
    assert chosen("1/8") == [1]


def made(*sizes: int) -> LayerwiseTopK:
    entries, start = [], 0
    for number, size in enumerate(sizes):
        entries.append(Entry(str(number), (size,), start))
        start += size
    return LayerwiseTopK(tuple(entries))


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.fractions(min_value=0, max_value=1).filter(bool),
    st.integers(0, 99),
)
def test_each_tensor_has_its_share_and_all_of_them_the_budget(sizes: list[int], fraction: object, seed: int) -> None:
    budget, extractor, total = Budget.parse(str(fraction)), made(*sizes), sum(sizes)
    kept = extractor.kept(budget)
    assert sum(kept) <= budget.limit(total)
    for size, own in zip(sizes, kept, strict=True):
        share = budget.limit(size)
        assert own == share if share else own in (0, 1)
    if 0 in kept:
        assert sum(kept) == budget.limit(total)  # there was no more room
    if not sum(kept):
        return
    weights = torch.randn(total, generator=torch.Generator().manual_seed(seed))
    indices = extractor.select(weights, budget, 1).indices
    if indices is None:
        assert sum(kept) == total
        return
    assert indices.dtype == torch.int32
    assert bool((indices.diff() > 0).all())
    expected = []
    for entry, own in zip(extractor.entries, kept, strict=True):
        part = weights[entry.start : entry.stop]
        expected += [entry.start + place for place in (top_indices(part, own).tolist() if own else [])]
    assert indices.tolist() == expected


def test_it_is_set_up_from_the_layout_without_what_always_travels() -> None:
    def architecture() -> SmallCNN:
        return SmallCNN(1, 2, 2)

    layout = ParameterLayout.of(architecture())
    extractor = LayerwiseTopK.configured(Config(), Network(architecture, layout, Images(1, 8, 8)))
    assert [entry.name for entry in extractor.entries] == [
        "stages.0.0.weight", "stages.1.0.weight", "stages.2.0.weight", "classifier.weight", "classifier.bias"
    ]  # fmt: skip
    assert sum(entry.stop - entry.start for entry in extractor.entries) == layout.maskable
    # 18, 72, 288, 16 and 2 of them: ⌊n/8⌋, and one for the bias
    assert extractor.kept(Budget.parse("1/8")) == [2, 9, 36, 2, 0]
