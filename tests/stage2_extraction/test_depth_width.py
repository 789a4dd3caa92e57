import copy
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from framp.budgets import Budget
from framp.client.workspace import Workspace
from framp.config import Config
from framp.data.kinds import Images
from framp.errors import BudgetError, ModelError
from framp.layout import ParameterLayout
from framp.messages import Submodel
from framp.models import MultiExit, NamedArchitecture, ResNet18, SmallCNN, WithExits, blank
from framp.settings import ModelConfig
from framp.stage2_extraction import DepthWidth
from framp.stage2_extraction.depth_width import Level
from framp.stage2_extraction.network import Network


def made(network: nn.Module, *budgets: str, image: tuple[int, ...] = (3, 8, 8)) -> DepthWidth:
    values: dict[str, Any] = {
        "federation.budgets": list(budgets), "federation.shares": [1 / len(budgets)] * len(budgets)
    }  # fmt: skip
    shape = Network(lambda: copy.deepcopy(network), ParameterLayout.of(network), Images(*image))
    return DepthWidth.configured(Config().with_values(values), shape)


@cache
def full_size() -> MultiExit:
    """The paper's network, built once: it is only looked at."""
    return MultiExit(ResNet18(3, 10, 64))


def levels(extractor: DepthWidth, *budgets: str) -> list[tuple[int, float]]:
    found = [extractor.level(Budget.parse(budget)) for budget in budgets]
    return [(level.depth, round(float(level.ratio), 3)) for level in found]


def test_the_papers_network_has_these_levels_for_four_budgets() -> None:
    budgets = ("1/64", "1/16", "1/4", "1")
    extractor = made(full_size(), *budgets)
    assert extractor.exits == (4, 6, 7, 8)
    assert levels(extractor, *budgets) == [(4, 0.5), (6, 0.5), (7, 0.656), (8, 1.0)]
    for budget in map(Budget.parse, budgets):
        level = extractor.level(budget)
        assert level.exits == tuple(exit for exit in (4, 6, 7, 8) if exit <= level.depth)
        without_exits = 11_164_362
        assert budget.fraction == 1 or extractor.through(level.exits).count(level.ratio) <= budget.limit(without_exits)
        assert extractor.granted(budget) is budget


def test_the_papers_network_has_these_levels_for_five_budgets() -> None:
    budgets = ("0.04", "0.16", "0.36", "0.64", "1")
    extractor = made(full_size(), *budgets)
    assert extractor.exits == (4, 6, 7, 8)
    assert [depth for depth, _ in levels(extractor, *budgets)] == [4, 6, 7, 8, 8]


def small(*budgets: str) -> DepthWidth:
    return made(MultiExit(SmallCNN(3, 5, 4)), *budgets)


def test_a_level_by_hand() -> None:
    """One unit: 27 a channel of the first convolution, and 5 a channel and 5 of its exit."""
    extractor = small("1/8", "1")
    # 108 + 288 + 1152 + 80 + 5 of the trunk, 20 + 5 and 40 + 5 of the exits
    assert extractor.slices.layout.maskable == 1703
    first = extractor.through((1,))
    assert [first.count(Fraction(kept, 4)) for kept in (1, 2, 3, 4)] == [32 * kept + 5 for kept in (1, 2, 3, 4)]
    two = extractor.through((2,))
    assert two.count(Fraction(1, 2)) == 27 * 2 + 9 * 2 * 4 + 4 * 5 + 5
    assert extractor.through((1, 2)).count(Fraction(1, 2)) == two.count(Fraction(1, 2)) + 2 * 5 + 5
    assert extractor.through((1, 2, 3)).count(Fraction(1)) == 1703


def test_the_deeper_and_the_wider_are_weighed() -> None:
    """Of 1633/8 = 204: depth 2 has half of its channels (151; the next, 246), depth 3 a quarter (142; the next, 273).

    2^1.5 · 1/2 = 1.41 against 3^1.5 · 1/4 = 1.30; depth 1 fits whole, and does not count.
    """
    extractor = small("1/8", "1")
    fits = [extractor.through((depth,)).largest(204) for depth in (1, 2, 3)]
    assert fits == [1, Fraction(1, 2), Fraction(1, 4)]
    assert extractor.exits == (2, 3)
    assert extractor.level(Budget.parse("1/8")) == Level(2, (2,), Fraction(1, 2))
    assert extractor.level(Budget.parse("1")) == Level(3, (2, 3), Fraction(1))
    # of a third, 544: depth 3 with both exits has half (108/2 + 72 + 288 + 40 + 5, and 20 + 5)
    assert extractor.level(Budget.parse("1/3")) == Level(3, (2, 3), Fraction(1, 2))


@pytest.mark.parametrize("budget", ["1/16", "1/8", "1/4", "1/2", "0.9", "1"])
def test_a_level_is_a_network_of_its_own(budget: str) -> None:
    network = WithExits(NamedArchitecture(ModelConfig(width=4), Images(3, 8, 8), 5))
    extractor = made(blank(network), "1/16", "1/4", "1")
    layout, size = extractor.slices.layout, Budget.parse(budget)
    vector = torch.randn(layout.size, generator=torch.Generator().manual_seed(0))
    selection = extractor.select(vector[: layout.maskable], size, 4)
    below = torch.arange(layout.maskable) if selection.indices is None else selection.indices.long()
    above = vector[layout.maskable :] if selection.always is None else vector[layout.maskable :][selection.always]
    assert len(below) <= size.limit(layout.maskable)
    level = extractor.level(size)
    workspace = Workspace(network, 5)
    workspace.load(Submodel(layout.maskable, selection.indices, vector[below], above, selection.shapes))
    model = workspace.model
    assert isinstance(model, MultiExit)
    assert model.active == level.exits
    logits = model.exit_logits(torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)))
    assert [tuple(one.shape) for one in logits] == [(2, 5)] * len(level.exits)
    assert sum(parameter.numel() for parameter in model.parameters()) == len(below) + len(above)

    assert selection.class_rows is not None
    rows, classes = selection.class_rows.tolist()
    assert all(classes.count(label) == classes.count(0) for label in range(5))  # its inputs and a bias, an exit
    heads = [entry for entry in layout.entries if entry.name.startswith(("exits.", "network.classifier"))]
    expected = [row for row, index in enumerate(below.tolist()) if any(e.start <= index < e.stop for e in heads)]
    assert rows == expected


def test_a_network_without_exits_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        made(SmallCNN(3, 5, 4), "1")
    assert str(caught.value) == "SmallCNN has no exits; wrap its architecture in framp.models.WithExits"


def test_a_budget_below_the_least_level_is_refused() -> None:
    with pytest.raises(BudgetError) as caught:
        small("1/1000", "1")
    assert str(caught.value) == (
        "budget 1/1000 holds 1 parameters of the network without exits, and its shallowest network of one channel "
        "a layer has more; raise the budget or model.width (gcn: model.hidden)"
    )
