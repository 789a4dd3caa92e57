import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from framp.budgets import Budget
from framp.data.graph import Graph
from framp.data.kinds import Images, Kind, Nodes
from framp.errors import ConfigError
from framp.layout import ParameterLayout
from framp.models import GCN, GRAPH_NETWORKS, NamedArchitecture, initialised
from framp.settings import ModelConfig

MakeGraph = Callable[..., Graph]


def seeded(model: nn.Module, seed: int = 1) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


@pytest.mark.parametrize("layers", [2, 3, 4])
@pytest.mark.parametrize("rows", [None, [7, 11, 0]])
def test_it_is_a_stack_of_pytorch_geometrics_convolutions(
    layers: int, rows: list[int] | None, random_graph: MakeGraph
) -> None:
    graph = random_graph()
    if rows is not None:
        graph = graph.asking(torch.tensor(rows))
    model = seeded(GCN(5, 3, layers, hidden=6).double())
    linears = [part for part in model.modules() if isinstance(part, nn.Linear)]
    assert [(linear.in_features, linear.out_features) for linear in linears] == (
        [(5, 6)] + [(6, 6)] * (layers - 2) + [(6, 3)]
    )
    stack = [GCNConv(linear.in_features, linear.out_features).double() for linear in linears]
    values = graph.x
    for number, (convolution, linear) in enumerate(zip(stack, linears, strict=True)):
        convolution.lin.weight.data = linear.weight.data.clone()
        convolution.bias.data = linear.bias.data.clone()
        values = convolution(values if number == 0 else values.relu(), graph.edge_index)
    expected: Tensor = values if rows is None else values[rows]
    found = model(graph)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    torch.testing.assert_close(model.head(model.features(graph)), expected, atol=1e-10, rtol=0)  # type: ignore[operator]
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()  # type: ignore[no-untyped-call]
    for convolution, linear in zip(stack, linears, strict=True):
        assert convolution.lin.weight.grad.abs().max() > 1e-3
        torch.testing.assert_close(linear.weight.grad, convolution.lin.weight.grad, atol=1e-10, rtol=0)
        torch.testing.assert_close(linear.bias.grad, convolution.bias.grad, atol=1e-10, rtol=0)


def test_parameters_by_hand() -> None:
    """Two layers: 5·6 + 6 and 6·3 + 3; each further one has 6·6 + 6. All of them can be masked."""
    for layers in (2, 3, 4):
        layout = ParameterLayout.of(GCN(5, 3, layers, hidden=6))
        assert layout.maskable == layout.size == 36 + 21 + 42 * (layers - 2)


@pytest.mark.parametrize(("hidden", "parameters"), [(128, 54_696), (64, 19_176), (256, 174_888)])
def test_parameters_on_the_large_citation_graph(hidden: int, parameters: int) -> None:
    layout = ParameterLayout.of(NamedArchitecture(ModelConfig(name="gcn", hidden=hidden), Nodes(128), 40)())
    assert layout.maskable == layout.size == parameters


@pytest.mark.parametrize(("budget", "size"), [("1/64", 854), ("1/16", 3_418), ("1/4", 13_674), ("1", 54_696)])
def test_budgets_on_the_large_citation_graph(budget: str, size: int) -> None:
    assert Budget.parse(budget).limit(ParameterLayout.of(GCN(128, 40)).maskable) == size


def test_dropout_acts_in_training_only_and_follows_from_the_seed(random_graph: MakeGraph) -> None:
    graph = random_graph()
    model = seeded(GCN(5, 3, 2, hidden=64, dropout=0.5).double())
    assert isinstance(model, GCN)
    layer = model.layers[0]
    model.eval()
    whole = layer(graph).x
    assert torch.equal(layer(graph).x, whole)
    assert torch.equal(model(graph), seeded(GCN(5, 3, 2, hidden=64).double())(graph))
    model.train()
    torch.manual_seed(3)
    dropped = layer(graph).x
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * whole[kept], atol=1e-12, rtol=0)
    share = kept.sum() / (whole != 0).sum()
    assert 0.4 < share < 0.6
    torch.manual_seed(3)
    assert torch.equal(layer(graph).x, dropped)
    assert not torch.equal(layer(graph).x, dropped)


def test_no_feature_of_a_model_without_dropout_is_dropped(random_graph: MakeGraph) -> None:
    graph, model = random_graph(), seeded(GCN(5, 3).double())
    expected = model.eval()(graph)
    assert torch.equal(model.train()(graph), expected)


def test_it_starts_with_glorots_uniform_weights_and_without_bias() -> None:
    for linear in (
        part for part in initialised(lambda: GCN(50, 30, 3, 70), 0).modules() if isinstance(part, nn.Linear)
    ):
        bound = math.sqrt(6 / (linear.in_features + linear.out_features))
        assert 0.98 * bound < float(linear.weight.detach().abs().max()) <= bound
        assert not linear.bias.any()


def test_an_architecture_has_the_configured_size() -> None:
    config = ModelConfig(name="gcn", layers=3, hidden=7, dropout=0.25)
    model = NamedArchitecture(config, Nodes(5), 4)()
    assert isinstance(model, GCN)
    assert [(layer.linear.in_features, layer.linear.out_features, layer.dropout.p) for layer in model.layers] == [  # type: ignore[union-attr]
        (5, 7, 0.25), (7, 7, 0.25)
    ]  # fmt: skip
    assert (model.classifier.in_features, model.classifier.out_features) == (7, 4)
    assert list(GRAPH_NETWORKS) == ["gcn"]


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("gcn", Images(1, 8, 8), "model.name 'gcn' does not take images; set it to cnn or resnet18"),
        ("cnn", Nodes(5), "model.name 'cnn' does not take a graph; set it to gcn"),
        ("resnet18", Nodes(5), "model.name 'resnet18' does not take a graph; set it to gcn"),
        ("gcm", Nodes(5), "unknown model 'gcm'; did you mean 'gcn'?"),
    ],
)
def test_a_network_of_another_kind_is_refused(name: str, kind: Kind, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NamedArchitecture(ModelConfig(name=name), kind, 4)()
    assert str(caught.value) == message
