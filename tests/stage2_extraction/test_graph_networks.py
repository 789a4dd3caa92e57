"""Narrower and shallower graph networks."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv

from framp.budgets import Budget
from framp.client.workspace import Workspace
from framp.config import Config
from framp.data.graph import Graph
from framp.data.kinds import Nodes
from framp.errors import ModelError
from framp.layout import ParameterLayout
from framp.messages import Submodel
from framp.models import GCN, MultiExit, NamedArchitecture, WithExits
from framp.settings import ModelConfig
from framp.stage2_extraction import DepthWidth, WidthPrefix, WidthRolling
from framp.stage2_extraction.network import Network

MakeGraph = Callable[..., Graph]
Build = Callable[[], nn.Module]

ARXIV = NamedArchitecture(ModelConfig(name="gcn"), Nodes(128), 40)
BUDGETS = ("1/64", "1/16", "1/4", "1")


class Own(nn.Module):
    """Two of PyTorch Geometric's layers under a linear one."""

    def __init__(self, convolution: Any) -> None:
        super().__init__()
        self.first, self.second, self.out = convolution(5, 8), convolution(8, 6), nn.Linear(6, 3)

    def features(self, graph: Graph) -> Tensor:
        edges = graph.edge_index
        values: Tensor = self.second(self.first(graph.x, edges).relu(), edges).relu()
        return graph.asked(values)

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.out(features)
        return logits


def gcn() -> nn.Module:
    return GCN(5, 3, layers=4, hidden=8).double()


def convolutions() -> nn.Module:
    return Own(GCNConv).double()


def aggregations() -> nn.Module:
    return Own(SAGEConv).double()


def network(build: Build, features: int) -> Network:
    return Network(build, ParameterLayout.of(build()), Nodes(features))


def narrowed(part: Any, vector: Tensor, layout: ParameterLayout) -> tuple[Submodel, Tensor]:
    """A selection as clients get it, and the full network's vector with everything else at zero."""
    below = torch.arange(layout.maskable) if part.indices is None else part.indices.long()
    above = torch.arange(layout.size - layout.maskable) if part.always is None else part.always
    places = torch.cat([below, above + layout.maskable])
    others_cut = torch.zeros_like(vector)
    others_cut[places] = vector[places]
    held = Submodel(layout.maskable, part.indices, vector[below], vector[layout.maskable :][above], part.shapes)
    return held, others_cut


@pytest.mark.parametrize("build", [gcn, convolutions, aggregations])
@pytest.mark.parametrize("method", [WidthPrefix, WidthRolling])
def test_a_narrower_network_is_the_full_one_without_its_other_channels(
    build: Build, method: type[WidthPrefix] | type[WidthRolling], random_graph: MakeGraph
) -> None:
    graph = random_graph(features=5).asking(torch.tensor([0, 4, 11]))
    shape = network(build, 5)
    layout, workspace = shape.layout, Workspace(build, 3)
    extractor = method.configured(Config(), shape)
    vector = 0.5 * torch.randn(layout.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for round, name in enumerate(("1", "1/4", "1/2", "0.9", "1"), start=1):
        budget = Budget.parse(name)
        chosen = extractor.select(vector[: layout.maskable], extractor.granted(budget), round)
        held, others_cut = narrowed(chosen, vector, layout)
        assert len(held.values) <= budget.limit(layout.maskable)
        workspace.load(held)
        assert sum(parameter.numel() for parameter in workspace.model.parameters()) == len(held.values) + len(
            held.always
        )
        full = build()
        layout.bind(full, others_cut)
        found = workspace.model.head(workspace.model.features(graph))  # type: ignore[operator]
        expected = full.head(full.features(graph))  # type: ignore[operator]
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
        assert found.abs().max() > 1e-3


@pytest.mark.parametrize(
    ("budget", "width", "parameters"),
    [
        # 128·w + w, twice w·w + w, 40·w + 40
        ("1/64", 4, 756),
        ("1/16", 16, 3_288),
        ("1/4", 50, 13_590),
        ("1", 128, 54_696),
    ],
)
def test_widths_on_the_large_citation_graph(budget: str, width: int, parameters: int) -> None:
    extractor = WidthPrefix.configured(Config(), network(ARXIV, 128))
    size = Budget.parse(budget)
    assert parameters == (128 * width + width) + 2 * (width * width + width) + (40 * width + 40)
    wider = 128 * (width + 1) + width + 1 + 2 * (width + 1) * (width + 2) + 40 * (width + 2)
    assert parameters <= size.limit(54_696) < wider
    assert extractor.narrowed(size) == [width] * 3
    chosen = extractor.select(torch.zeros(54_696), size, 1).indices
    assert (54_696 if chosen is None else len(chosen)) == parameters


def test_levels_on_the_large_citation_graph_keep_their_budgets() -> None:
    config = Config().with_values({"federation.budgets": list(BUDGETS)})
    extractor = DepthWidth.configured(config, network(WithExits(ARXIV), 128))
    exits = 2 * (128 * 40 + 40)
    assert extractor.slices.layout.maskable == 54_696 + exits
    for name in BUDGETS:
        budget = Budget.parse(name)
        level = extractor.level(budget)
        width = -(-128 * level.ratio.numerator // level.ratio.denominator)
        taken = 128 * width + width + (level.depth - 1) * (width * width + width) + len(level.exits) * (40 * width + 40)
        chosen = extractor.select(torch.zeros(54_696 + exits), budget, 1).indices
        assert (54_696 + exits if chosen is None else len(chosen)) == taken
        assert taken <= (54_696 + exits if name == "1" else budget.limit(54_696))
        assert level.ratio < 1 or name == "1"
    assert extractor.level(Budget.parse("1")).depth == 3
    assert extractor.level(Budget.parse("1")).ratio == Fraction(1)


@pytest.mark.parametrize("budget", ["1/16", "1/2", "1"])
def test_a_level_of_a_graph_network_runs(budget: str, random_graph: MakeGraph) -> None:
    graph = random_graph(features=5).asking(torch.tensor([0, 4, 11]))
    architecture = WithExits(gcn)
    shape = network(architecture, 5)
    config = Config().with_values({"federation.budgets": ["1/16", "1/2", "1"], "federation.shares": [0.5, 0.25, 0.25]})
    extractor = DepthWidth.configured(config, shape)
    vector = torch.randn(shape.layout.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chosen = extractor.select(vector[: shape.layout.maskable], Budget.parse(budget), 1)
    held, others_cut = narrowed(chosen, vector, shape.layout)
    workspace, full = Workspace(architecture, 3), architecture()
    workspace.load(held)
    shape.layout.bind(full, others_cut)
    assert isinstance(workspace.model, MultiExit)
    assert workspace.model.active == extractor.level(Budget.parse(budget)).exits
    expected = [full.exit_logits(graph)[depth - 1] for depth in workspace.model.active]
    for found, wanted in zip(workspace.model.exit_logits(graph), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


def test_a_graph_network_that_goes_by_a_fixed_width_is_refused() -> None:
    class Fixed(Own):
        def features(self, graph: Graph) -> Tensor:
            return super().features(graph).view(-1, 6)

    with pytest.raises(ModelError, match="Fixed cannot be narrowed"):
        WidthPrefix.configured(Config(), network(lambda: Fixed(GCNConv), 5))
