"""φ of nodes; that of images is computed by hand in tests/client/test_describe.py."""

import numpy as np
import torch
from torch import nn

from framp.data.graph import Graph
from framp.data.kinds import Images, Nodes
from framp.models.features import feature_extractor, flattened, load, with_classifier

EDGES = [(0, 1), (0, 2), (1, 2), (2, 3)]


def lone_and_joined() -> tuple[Graph, np.ndarray]:
    """Nodes 0 to 3 are joined by the edges, node 4 is alone; and the graph's D^-½(A + I)D^-½, filled in."""
    joined = np.eye(5)
    for a, b in EDGES:
        joined[a, b] = joined[b, a] = 1
    degrees = joined.sum(axis=1)
    starts = torch.tensor([0, 2, 4, 7, 8, 8])
    neighbours = torch.tensor([1, 2, 0, 2, 0, 1, 3, 2])
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    return Graph.of(x, starts, neighbours), joined / np.sqrt(np.outer(degrees, degrees))


def test_features_of_nodes_are_two_dense_convolutions() -> None:
    graph, matrix = lone_and_joined()
    extractor = feature_extractor(Nodes(3), 11)
    first, first_bias, second, second_bias = (
        parameter.detach().double().numpy() for parameter in extractor.parameters()
    )
    assert (first.shape, second.shape) == ((128, 3), (128, 128))
    assert not first_bias.any()
    assert not second_bias.any()
    inner = np.maximum(matrix @ graph.x.double().numpy() @ first.T, 0)
    expected = np.maximum(matrix @ inner @ second.T, 0)
    np.testing.assert_allclose(extractor(graph).detach().numpy(), expected, atol=1e-5)
    rows = torch.tensor([4, 1])
    np.testing.assert_allclose(extractor(graph.asking(rows)).detach().numpy(), expected[[4, 1]], atol=1e-5)
    assert expected.max() > 0.1


def test_biases_count_once_they_are_trained() -> None:
    graph, matrix = lone_and_joined()
    extractor = feature_extractor(Nodes(3), 11)
    vector = flattened(extractor) + 0.1
    load(extractor, vector)
    assert torch.equal(flattened(extractor), vector)
    first, first_bias, second, second_bias = (
        parameter.detach().double().numpy() for parameter in extractor.parameters()
    )
    inner = np.maximum(matrix @ graph.x.double().numpy() @ first.T + first_bias, 0)
    expected = np.maximum(matrix @ inner @ second.T + second_bias, 0)
    np.testing.assert_allclose(extractor(graph).detach().numpy(), expected, atol=1e-4)


def test_an_extractor_follows_from_its_seed_alone() -> None:
    for kind in (Nodes(3), Images(3, 8, 8)):
        torch.manual_seed(1)
        first = flattened(with_classifier(kind, 4, 5))
        torch.manual_seed(2)
        before = torch.get_rng_state()
        assert torch.equal(flattened(with_classifier(kind, 4, 5)), first)
        assert torch.equal(torch.get_rng_state(), before)
        assert not torch.equal(flattened(with_classifier(kind, 4, 6)), first)
        assert torch.equal(flattened(feature_extractor(kind, 5)), first[: -(128 * 4 + 4)])


def test_a_classifier_over_features_of_nodes() -> None:
    graph, _ = lone_and_joined()
    model = with_classifier(Nodes(3), 4, 5)
    assert sum(parameter.numel() for parameter in model.parameters()) == (
        (128 * 3 + 128) + (128 * 128 + 128) + (4 * 128 + 4)
    )
    last = model[1]
    assert isinstance(last, nn.Linear)
    rows = torch.tensor([3, 0])
    expected = feature_extractor(Nodes(3), 5)(graph)[[3, 0]] @ last.weight.T + last.bias
    torch.testing.assert_close(model(graph.asking(rows)), expected, atol=1e-5, rtol=0)
