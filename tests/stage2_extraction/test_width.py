from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from framp.budgets import Budget
from framp.config import Config
from framp.data.kinds import Images
from framp.errors import BudgetError
from framp.layout import ParameterLayout
from framp.models import NamedArchitecture, blank
from framp.settings import ModelConfig
from framp.stage2_extraction import WidthPrefix, WidthRolling
from framp.stage2_extraction.network import Network
from framp.stage2_extraction.width import window

BUDGETS = ("1/64", "1/16", "1/4", "0.04", "0.16", "0.36", "0.64", "1")


@cache
def network(name: str, width: int, classes: int = 10) -> Network:
    architecture = NamedArchitecture(ModelConfig(name=name, width=width), Images(3, 8, 8), classes)
    return Network(architecture, ParameterLayout.of(blank(architecture)), Images(3, 8, 8))


def prefix(name: str, width: int, **settings: Any) -> WidthPrefix:
    values = {f"width.{key}": value for key, value in settings.items()}
    return WidthPrefix.configured(Config().with_values(values), network(name, width))


def rolling(width: int = 4, **settings: Any) -> WidthRolling:
    values = {f"width.{key}": value for key, value in settings.items()}
    return WidthRolling.configured(Config().with_values(values), network("cnn", width))


def channels(extractor: WidthPrefix | WidthRolling, budget: str, round: int, in_use: bool = False) -> list[int]:
    """The channels of the first layer that a selection has."""
    layout = extractor.slices.layout
    first = layout.entries[0]
    assert first.name == "stages.0.0.weight"
    indices = extractor.select(torch.zeros(layout.maskable), Budget.parse(budget), round, in_use).indices
    if indices is None:
        return list(range(first.shape[0]))
    inside = indices[indices < first.stop]
    return sorted({int(index) // (first.stop // first.shape[0]) for index in inside})


def test_windows_by_hand() -> None:
    """They start one channel earlier each round, and wrap around."""
    found = [window(turn, 3, 5).tolist() for turn in range(6)]
    assert found == [[0, 1, 2], [0, 1, 4], [0, 3, 4], [2, 3, 4], [1, 2, 3], [0, 1, 2]]
    assert window(7, 4, 4).tolist() == [0, 1, 2, 3]
    assert window(2, 1, 3).tolist() == [1]


@given(st.integers(0, 500), st.integers(1, 40), st.data())
def test_every_channel_is_selected_equally_often(start: int, width: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(1, width))
    windows = [window(turn, kept, width) for turn in range(start, start + width)]
    assert all(len(found) == kept and bool((found[1:] > found[:-1]).all()) for found in windows)
    counts = Counter(int(channel) for found in windows for channel in found)
    assert counts == dict.fromkeys(range(width), kept)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(("name", "width"), [("cnn", 32), ("resnet18", 16)])
def test_a_network_is_the_widest_within_its_budget(name: str, width: int, budget: str) -> None:
    extractor, size = prefix(name, width), Budget.parse(budget)
    layout = extractor.slices.layout
    assert extractor.granted(size) is size
    selection = extractor.select(torch.zeros(layout.maskable), size, 3)
    ratio = extractor.slices.largest(size.limit(layout.maskable))
    assert ratio is not None
    if selection.indices is None:
        assert ratio == size.fraction == 1
        return
    assert len(selection.indices) == extractor.slices.count(ratio) <= size.limit(layout.maskable)
    widest = max(extractor.slices.structure.widths)
    assert extractor.slices.count(ratio + Fraction(1, widest)) > size.limit(layout.maskable)


def test_the_papers_network_within_the_papers_budgets() -> None:
    extractor = prefix("resnet18", 64)
    maskable = extractor.slices.layout.maskable
    assert maskable == 11_164_362
    for budget in map(Budget.parse, BUDGETS):
        ratio = extractor.slices.largest(budget.limit(maskable))
        assert ratio is not None
        taken = extractor.slices.count(ratio) / maskable
        assert taken <= float(budget.fraction)
        assert float(budget.fraction) - taken < 0.004
        assert float(ratio) == pytest.approx(float(budget.fraction) ** 0.5, abs=0.004)


def test_the_original_rule_says_what_it_takes() -> None:
    """A quarter is r = 1/2 of each layer's channels, a little more than a quarter of the parameters."""
    extractor = prefix("resnet18", 64, rule="original")
    granted = extractor.granted(Budget.parse("1/4"))
    stem, stages, inputs = 9 * 3 * 32, 0, 32
    for outputs in (32, 64, 128, 256):
        stages += 9 * (inputs * outputs + 3 * outputs * outputs) + (inputs * outputs if inputs != outputs else 0)
        inputs = outputs
    assert stem + stages + 256 * 10 + 10 == 2_792_810
    assert granted == Budget("1/4", Fraction(2_792_810, 11_164_362))
    assert granted.fraction > Fraction(1, 4)
    assert extractor.narrowed(granted) == [width // 2 for width in extractor.slices.structure.widths]
    assert extractor.granted(Budget.parse("1")).fraction == 1


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_original_rule_keeps_the_root_of_the_budget_of_each_layer(budget: str) -> None:
    extractor = prefix("resnet18", 16, rule="original")
    widths = extractor.slices.structure.widths
    thousandths = round(1000 * float(Fraction(budget)) ** 0.5)  # 125, 250, 500, 200, 400, 600, 800, 1000
    expected = [-(-thousandths * width // 1000) for width in widths]
    granted = extractor.granted(Budget.parse(budget))
    assert extractor.narrowed(granted) == expected
    assert granted.limit(extractor.slices.layout.maskable) == extractor.slices.structure.count(
        extractor.slices.layout, expected
    )


def test_a_prefix_is_the_same_in_each_round() -> None:
    extractor = prefix("cnn", 4)
    for round in (1, 2, 50):
        assert channels(extractor, "1/4", round) == [0, 1]
        assert channels(extractor, "1", round) == [0, 1, 2, 3]


def test_a_rolling_window_starts_at_the_prefix() -> None:
    extractor = rolling()
    found = [channels(extractor, "1/4", round) for round in (1, 2, 3, 4, 5)]
    assert found == [[0, 1], [0, 3], [2, 3], [1, 2], [0, 1]]
    assert channels(extractor, "1", 3) == [0, 1, 2, 3]


@pytest.mark.parametrize(("test_window", "expected"), [("last", [2, 3]), ("prefix", [0, 1])])
def test_which_window_is_in_use(test_window: str, expected: list[int]) -> None:
    extractor = rolling(test_window=test_window)
    assert channels(extractor, "1/4", 3, in_use=True) == expected
    assert channels(extractor, "1/4", 3) == [2, 3]
    assert channels(extractor, "1/4", 0, in_use=True) == [0, 1]  # before the first round


def test_windows_of_all_rounds_are_of_one_size() -> None:
    extractor = rolling(6)
    weights = torch.zeros(extractor.slices.layout.maskable)
    for budget in map(Budget.parse, ("1/8", "1/2", "0.9")):
        selections = [extractor.select(weights, budget, round) for round in (1, 2, 7, 100)]
        sizes = {len(selection.indices) for selection in selections if selection.indices is not None}
        assert len(sizes) == len({selection.shapes for selection in selections}) == 1
        assert sizes.pop() <= budget.limit(len(weights))


def test_a_budget_below_one_channel_a_layer_is_refused() -> None:
    # 9·(3·1 + 1·1 + 1·1) + 1·10 + 10 = 65 of 108 + 288 + 1152 + 160 + 10 = 1718
    extractor = prefix("cnn", 4)
    assert extractor.granted(Budget.parse("65/1718")).fraction == Fraction(65, 1718)
    with pytest.raises(BudgetError) as caught:
        extractor.granted(Budget.parse("64/1718"))
    assert str(caught.value) == (
        "budget 64/1718 of a model with 1718 parameters holds 64 of them, and a network of one channel a layer has 65; "
        "raise the budget or model.width (of a gcn model.hidden)"
    )


def test_nothing_is_learned() -> None:
    for extractor in (prefix("cnn", 4), rolling()):
        extractor.learn([], lambda client: torch.zeros(8))
        assert extractor.state() == {}


class Flat(nn.Module):
    """Nothing but an output layer: there is nothing to cut."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(192, 5)

    def features(self, images: Tensor) -> Tensor:
        return images.flatten(1)

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.out(features)
        return logits


def test_a_network_without_channels_is_whole_or_refused() -> None:
    extractor = WidthPrefix.configured(Config(), Network(Flat, ParameterLayout.of(Flat()), Images(3, 8, 8)))
    full = Budget.parse("1")
    assert extractor.granted(full) is full
    assert extractor.select(torch.zeros(965), full, 1).indices is None
    with pytest.raises(BudgetError, match="a network of one channel a layer has 965"):
        extractor.granted(Budget.parse("1/2"))
