from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from framp.client.describe import describe, train_extractor
from framp.data import Shard
from framp.data.graph import Graph
from framp.data.kinds import Images, Nodes
from framp.data.subgraph import Subgraph
from framp.messages import Describe, ExtractorTraining
from framp.models.features import DIMENSIONS, feature_extractor, flattened, load, with_classifier

MakeGraph = Callable[..., Graph]


def shard(samples: int, channels: int = 1, size: int = 8, seed: int = 0) -> Shard:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (samples, channels, size, size), generator=generator, dtype=torch.uint8)
    moments = torch.full((channels, 1, 1), 0.5), torch.full((channels, 1, 1), 0.3)
    return Shard(images, torch.zeros(samples, dtype=torch.int64), *moments)


@settings(max_examples=15)
@given(st.integers(2, 300), st.integers(0, 10**6))
def test_the_order_of_the_samples_does_not_matter(samples: int, seed: int) -> None:
    own = shard(samples, seed=seed)
    order = np.random.default_rng(seed).permutation(samples)
    shuffled = Shard(own.images[order], own.labels[order], own.mean, own.std)
    torch.testing.assert_close(describe(shuffled, Describe(0, 0)), describe(own, Describe(0, 0)), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("channels", "size"), [(1, 1), (1, 8), (3, 7), (3, 32)])
def test_a_descriptor_is_128_numbers_whatever_the_images(channels: int, size: int) -> None:
    vector = describe(shard(3, channels, size), Describe(0, 0))
    assert vector.shape == (DIMENSIONS,) == (128,)
    assert vector.dtype == torch.float32
    assert bool(torch.isfinite(vector).all())
    assert bool((vector >= 0).all())  # a mean of rectified features
    assert vector.nbytes == 512


def test_a_descriptor_by_hand() -> None:
    own = shard(5, 3)
    layers = feature_extractor(Images(3, 8, 8), 11)
    assert isinstance(layers, nn.Sequential)
    maps, _ = own.batch(slice(None))
    for place in (0, 3, 6):
        convolution = layers[place]
        assert isinstance(convolution, nn.Conv2d)
        assert convolution.bias is not None
        assert not convolution.bias.any()
        maps = F.max_pool2d(F.relu(F.conv2d(maps, convolution.weight, padding=1)), 2, ceil_mode=True)
    expected = torch.stack([one.mean(dim=(1, 2)) for one in maps]).mean(dim=0)
    torch.testing.assert_close(describe(own, Describe(0, 11)), expected.detach(), atol=1e-6, rtol=1e-5)


def test_the_extractor_is_the_same_for_everybody_and_follows_from_the_seed_alone() -> None:
    own = shard(4)
    torch.manual_seed(1)
    first = describe(own, Describe(0, 5))
    torch.manual_seed(2)
    assert torch.equal(describe(own, Describe(0, 5)), first)
    assert not torch.equal(describe(own, Describe(0, 6)), first)
    assert not torch.equal(describe(shard(4, seed=1), Describe(0, 5)), first)


def test_describing_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    describe(shard(4), Describe(0, 5))
    assert torch.equal(torch.get_rng_state(), before)


def subgraph(random_graph: MakeGraph) -> Subgraph:
    """Five training nodes, of three classes, of a graph of twelve."""
    graph = random_graph(dtype=torch.float32).asking(torch.tensor([8, 1, 11, 3, 0]))
    return Subgraph([graph], [torch.tensor([0, 2, 3, 0, 2])])


def dense_features(graph: Graph, parameters: list[Tensor]) -> Tensor:
    """φ of all nodes, of the dense adjacency."""
    joined = torch.eye(len(graph.x), dtype=torch.float64)
    joined[graph.edge_index[0], graph.edge_index[1]] = 1
    degrees = joined.sum(dim=1)
    matrix = joined / torch.outer(degrees, degrees).sqrt()
    inner = (matrix @ graph.x.double() @ parameters[0].T + parameters[1]).relu()
    return (matrix @ inner @ parameters[2].T + parameters[3]).relu()


def test_a_subgraphs_descriptor_is_the_mean_over_its_training_nodes(random_graph: MakeGraph) -> None:
    samples = subgraph(random_graph)
    start = [parameter.detach().double() for parameter in feature_extractor(Nodes(5), 11).parameters()]
    expected = dense_features(samples.graphs[0], start)[[8, 1, 11, 3, 0]].mean(dim=0)
    torch.testing.assert_close(describe(samples, Describe(0, 11)).double(), expected, atol=1e-6, rtol=0)
    trained = [parameter + 0.1 for parameter in start]
    expected = dense_features(samples.graphs[0], trained)[[8, 1, 11, 3, 0]].mean(dim=0)
    vector = torch.cat([parameter.flatten() for parameter in trained]).float()
    found = describe(samples, Describe(0, 11, extractor=vector))
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
    assert expected.max() > 0.1


def test_an_extractor_is_trained_on_a_subgraph_by_full_descent(random_graph: MakeGraph) -> None:
    samples = subgraph(random_graph)
    start = flattened(with_classifier(Nodes(5), 4, 3))
    change = train_extractor(samples, 4, ExtractorTraining(start, 3, 0.2), 2, 9)

    model = with_classifier(Nodes(5), 4, 3)
    parameters = [parameter.detach().double().requires_grad_() for parameter in model.parameters()]
    losses = []
    for _ in range(4):
        features = dense_features(samples.graphs[0], parameters)[[8, 1, 11, 3, 0]]
        chances = (features @ parameters[4].T + parameters[5]).exp()
        loss = -(chances[range(5), [0, 2, 3, 0, 2]] / chances.sum(dim=1)).log().mean()
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, parameters)
        if len(losses) < 4:
            parameters = [(p - 0.2 * g).detach().requires_grad_() for p, g in zip(parameters, gradients, strict=True)]
    expected = torch.cat([parameter.detach().flatten() for parameter in parameters]) - start.double()
    torch.testing.assert_close(change.double(), expected, atol=1e-6, rtol=0)
    assert losses == sorted(losses, reverse=True)

    load(model, start + change)
    before = with_classifier(Nodes(5), 4, 3)
    for now, then in zip(model.parameters(), before.parameters(), strict=True):
        assert (now - then).abs().max() > 1e-4
    with torch.no_grad():
        assert F.cross_entropy(model(samples.graphs[0]), samples.labels).item() == pytest.approx(losses[3], abs=1e-6)
