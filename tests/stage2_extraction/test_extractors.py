import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framp.budgets import FULL, Budget
from framp.config import Config
from framp.stage2_extraction import Everything, Extractor, GlobalTopK


def test_global_topk_by_hand() -> None:
    weights = torch.tensor([0.1, -0.9, 0.3, 0.3, -0.3, 0.05, 0.0, 0.2])
    extractor = GlobalTopK()
    chosen = {name: extractor.select(weights, Budget.parse(name)) for name in ("1/8", "1/4", "1/2", "0.99", "1")}
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
            GlobalTopK().select(weights, budget)
        return
    indices = GlobalTopK().select(weights, budget)
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
    assert GlobalTopK.configured(Config()).granted(quarter) is quarter
    assert Everything.configured(Config()).granted(quarter) == FULL


def test_everything_is_everything() -> None:
    for name in ("1/4", "1"):
        extractor: Extractor = Everything()
        assert extractor.select(torch.ones(8), Budget.parse(name)) is None
