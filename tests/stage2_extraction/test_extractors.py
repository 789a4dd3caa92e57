import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framp.budgets import FULL, Budget
from framp.config import Config
from framp.data.kinds import Images
from framp.layout import ParameterLayout
from framp.models import SmallCNN
from framp.stage2_extraction import Everything, Extractor, GlobalTopK
from framp.stage2_extraction.network import Network


def tiny() -> SmallCNN:
    return SmallCNN(1, 2, 2)


def test_global_topk_by_hand() -> None:
    weights = torch.tensor([0.1, -0.9, 0.3, 0.3, -0.3, 0.05, 0.0, 0.2])
    extractor = GlobalTopK()
    names = ("1/8", "1/4", "1/2", "0.99", "1")
    chosen = {name: extractor.select(weights, Budget.parse(name), 3).indices for name in names}
    assert {name: None if indices is None else indices.tolist() for name, indices in chosen.items()} == {
        "1/8": [1],
        "1/4": [1, 2],
        "1/2": [1, 2, 3, 4],
        "0.99": [0, 1, 2, 3, 4, 5, 7],
        "1": None,
    }


@given(st.integers(1, 200), st.fractions(min_value=0, max_value=1).filter(bool), st.integers(0, 99))
def test_exactly_the_budget_is_kept(maskable: int, fraction: object, seed: int) -> None:
    budget = Budget.parse(str(fraction))
    weights = torch.randint(-3, 4, (maskable,), generator=torch.Generator().manual_seed(seed)).float()
    if budget.limit(maskable) < 1:
        with pytest.raises(ValueError, match="k is 0"):
            GlobalTopK().select(weights, budget, 1)
        return
    selection = GlobalTopK().select(weights, budget, 1)
    assert (selection.always, selection.shapes, selection.class_rows) == (None, None, None)  # a mask over it all
    indices = selection.indices
    if indices is None:
        assert budget.limit(maskable) == maskable
        return
    assert len(indices) == budget.limit(maskable)
    assert indices.dtype == torch.int32
    assert bool((indices.diff() > 0).all())
    outside = torch.ones(maskable, dtype=torch.bool)
    outside[indices] = False
    assert weights[indices].abs().min() >= weights[outside].abs().max()


def test_what_is_granted() -> None:
    quarter = Budget.parse("1/4")
    network = Network(tiny, ParameterLayout.of(tiny()), Images(1, 8, 8))
    assert GlobalTopK.configured(Config(), network).granted(quarter) is quarter
    assert Everything.configured(Config(), network).granted(quarter) == FULL


def test_everything_is_everything() -> None:
    for name in ("1/4", "1"):
        extractor: Extractor = Everything()
        found = extractor.select(torch.ones(8), Budget.parse(name), 1)
        assert (found.indices, found.always, found.shapes, found.class_rows) == (None, None, None, None)


def test_what_learns_nothing_has_no_state() -> None:
    for extractor in (GlobalTopK(), Everything()):
        extractor.learn([], lambda client: torch.zeros(8))
        assert extractor.state() == {}
