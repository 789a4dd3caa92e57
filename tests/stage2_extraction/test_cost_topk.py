from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from framp.budgets import Budget
from framp.config import Config
from framp.data.kinds import Images
from framp.errors import BudgetError, ConfigError, ModelError
from framp.layout import Entry, ParameterLayout
from framp.models import SmallCNN
from framp.stage2_extraction import CostTopK, GlobalTopK
from framp.stage2_extraction.network import Network
from framp.work import Work

WORK = Work((Entry("a", (2,), 0), Entry("b", (3,), 2), Entry("c", (1,), 5)), (16, 4, 0))
WEIGHTS = torch.tensor([4.0, -8.0, 3.0, 0.5, -5.0, 1.5])
#: |w| / √c:             1     2     1.5  .25    2.5   1.5       the multiply-adds of all are 2·16 + 3·4 = 44


def chosen(budget: str, bounded: bool = True, exponent: float = 0.5) -> list[int] | None:
    selection = CostTopK(WORK, exponent, bounded).select(WEIGHTS, Budget.parse(budget), 3)
    assert (selection.always, selection.shapes, selection.class_rows) == (None, None, None)
    found: list[int] | None = None if selection.indices is None else selection.indices.tolist()
    return found


def test_the_highest_scores_by_hand() -> None:
    assert chosen("1/2", bounded=False) == [1, 2, 4]  # of 2 and 5, of one score, the former
    assert chosen("2/3", bounded=False) == [1, 2, 4, 5]
    assert chosen("1") is None


def test_whichever_budget_ends_first() -> None:
    assert chosen("1/2") == [1, 4]  # 20 of 22 multiply-adds; the third entry would make 24
    assert chosen("6/11") == [1, 2, 4]  # 24 of 24, and three of three entries
    assert chosen("10/11", exponent=0.0) == [0, 1, 2, 4, 5]  # 40 of 40, and five of five
    assert chosen("9/11", exponent=0.0) == [0, 1, 4]  # 36 of 36; the fourth entry would make 40


@st.composite
def problems(draw: st.DrawFn) -> tuple[Work, torch.Tensor, float]:
    """Tensors of some sizes and costs, weights with many ties."""
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))
    uses = draw(st.lists(st.integers(0, 30), min_size=len(sizes), max_size=len(sizes)))
    starts = np.cumsum([0, *sizes])
    entries = tuple(
        Entry(str(n), (size,), int(start)) for n, (size, start) in enumerate(zip(sizes, starts, strict=False))
    )
    seed, dtype = draw(st.integers(0, 99)), draw(st.sampled_from([torch.float32, torch.float64]))
    weights = torch.randint(-9, 10, (sum(sizes),), generator=torch.Generator().manual_seed(seed)).to(dtype) / 8
    return Work(entries, tuple(uses)), weights, draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))


FRACTIONS = st.fractions(min_value=0, max_value=1, max_denominator=64).filter(bool)


def kept(problem: tuple[Work, torch.Tensor, float], fraction: Fraction, bounded: bool = True) -> list[int]:
    work, weights, exponent = problem
    budget = Budget.parse(str(fraction))
    if budget.limit(len(weights)) < 1:
        return []
    indices = CostTopK(work, exponent, bounded).select(weights, budget, 1).indices
    if indices is None:
        assert fraction == 1
        return list(range(len(weights)))
    assert indices.dtype == torch.int32
    found: list[int] = indices.tolist()
    return found


@given(problems(), FRACTIONS)
def test_it_is_the_longest_beginning_of_the_order_within_both_budgets(
    problem: tuple[Work, torch.Tensor, float], fraction: Fraction
) -> None:
    work, weights, exponent = problem
    costs = [uses for entry, uses in zip(work.entries, work.uses, strict=True) for _ in range(entry.stop - entry.start)]
    scores = CostTopK(work, exponent, True).scores(weights).abs().tolist()
    order = sorted(range(len(weights)), key=lambda place: (-scores[place], place))
    expected: list[int] = []
    spent = 0
    for place in order[: int(fraction * len(weights))]:
        if spent + costs[place] > fraction * work.total:
            break
        spent += costs[place]
        expected.append(place)
    found = kept(problem, fraction)
    assert found == sorted(expected)
    assert len(found) <= fraction * len(weights)
    assert sum(costs[place] for place in found) <= fraction * work.total


@given(problems(), FRACTIONS, FRACTIONS)
def test_a_larger_budget_keeps_all_that_a_smaller_one_keeps(
    problem: tuple[Work, torch.Tensor, float], one: Fraction, other: Fraction
) -> None:
    assert set(kept(problem, min(one, other))) <= set(kept(problem, max(one, other)))


@given(problems(), FRACTIONS)
def test_without_an_exponent_and_for_parameters_alone_it_is_global_topk(
    problem: tuple[Work, torch.Tensor, float], fraction: Fraction
) -> None:
    work, weights, _ = problem
    budget = Budget.parse(str(fraction))
    if budget.limit(len(weights)) < 1:
        return
    indices = GlobalTopK().select(weights, budget, 1).indices
    assert kept((work, weights, 0.0), fraction, bounded=False) == (
        list(range(len(weights))) if indices is None else indices.tolist()
    )


def configured(**values: object) -> CostTopK:
    def architecture() -> SmallCNN:
        return SmallCNN(1, 4, 2)

    config = Config().with_values({f"cost.{key}": value for key, value in values.items()})
    return CostTopK.configured(config, Network(architecture, ParameterLayout.of(architecture()), Images(1, 9, 9)))


def test_it_is_set_up_from_the_network() -> None:
    assert configured().work.uses == (81, 25, 9, 1, 0)
    assert configured().bounded
    assert not configured(budget="parameters", exponent=0.5).bounded
    with pytest.raises(ConfigError, match=r"cost\.exponent is -1"):
        configured(exponent=-1.0)


class Computed(nn.Module):
    """A network whose first weights are no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.classifier = nn.Parameter(torch.ones(2, 1, 3, 3)), nn.Linear(2, 4)

    def features(self, images: Tensor) -> Tensor:
        return functional.conv2d(images, self.weight + self.weight).mean(dim=(2, 3))

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


def test_only_who_needs_the_work_misses_it() -> None:
    network = Network(Computed, ParameterLayout.of(Computed()), Images(1, 9, 9))
    assert network.counted_work() is None
    GlobalTopK.configured(Config(), network)
    with pytest.raises(ModelError, match=r"the work of Computed cannot be counted.*take a method whose budget is of"):
        CostTopK.configured(Config(), network)


def test_a_budget_that_might_not_hold_one_entry_is_refused() -> None:
    """Of 5,882 multiply-adds, 1/73 are 80, and an entry of the first layer costs 81."""
    small, enough = Budget.parse("1/73"), Budget.parse("1/72")
    assert configured().granted(enough) is enough
    assert configured(budget="parameters").granted(small) is small
    with pytest.raises(BudgetError, match=r"1/73 holds 80 of the network's 5882 multiply-adds, .* can cost 81; raise"):
        configured().granted(small)


def test_the_weights_stay_as_they_are() -> None:
    weights = WEIGHTS.clone()
    CostTopK(WORK, 0.5, True).select(weights, Budget.parse("1/2"), 1)
    assert torch.equal(weights, WEIGHTS)
