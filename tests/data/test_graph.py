import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from framp.data.graph import Graph, propagate

Edges = list[tuple[int, int]]


def made(nodes: int, edges: Edges, features: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0) -> Graph:
    """A graph of random features; of each node the neighbours are listed from the last to the first."""
    generator = torch.Generator().manual_seed(seed)
    neighbours = [[b for a, b in edges + [(b, a) for a, b in edges] if a == node] for node in range(nodes)]
    starts = [0, *np.cumsum([len(own) for own in neighbours]).tolist()]
    flat = [neighbour for own in neighbours for neighbour in sorted(own, reverse=True)]
    x = torch.randn(nodes, features, generator=generator, dtype=torch.float64).to(dtype)
    return Graph.of(x, torch.tensor(starts), torch.tensor(flat, dtype=torch.int64))


def dense(nodes: int, edges: Edges) -> np.ndarray:
    """D^-½(A + I)D^-½, entry by entry."""
    joined = np.eye(nodes)
    for a, b in edges:
        joined[a, b] = joined[b, a] = 1
    degrees = joined.sum(axis=1)
    for a in range(nodes):
        for b in range(nodes):
            joined[a, b] /= math.sqrt(degrees[a] * degrees[b])
    return joined


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    """A few nodes, some of them perhaps alone, and which of them are joined."""
    nodes = draw(st.integers(1, 9))
    pairs = list(combinations(range(nodes), 2))
    return nodes, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


def test_a_path_by_hand() -> None:
    """0 - 1 - 2: with themselves, the nodes have 2, 3 and 2 neighbours."""
    graph = made(3, [(0, 1), (1, 2)])
    side = 1 / math.sqrt(6)
    expected = torch.tensor([[1 / 2, side, 0], [side, 1 / 3, side], [0, side, 1 / 2]], dtype=torch.float64)
    torch.testing.assert_close(graph.adjacency.to_dense(), expected, atol=1e-15, rtol=0)
    root = math.sqrt(6)
    moved = graph.carrying(torch.tensor([[2.0, 0.0], [root, 3.0], [4.0, root]], dtype=torch.float64)).propagated
    expected = torch.tensor([[2, 3 / root], [root / 3 + root, 2], [3, 1 / 2 * root + 3 / root]], dtype=torch.float64)
    torch.testing.assert_close(moved, expected, atol=1e-14, rtol=0)


def test_a_star_by_hand() -> None:
    """The middle has 4 neighbours with itself, the three tips have 2."""
    graph = made(4, [(2, 0), (2, 1), (3, 2)])
    ray = 1 / math.sqrt(8)
    expected = [[1 / 2, 0, ray, 0], [0, 1 / 2, ray, 0], [ray, ray, 1 / 4, ray], [0, 0, ray, 1 / 2]]
    torch.testing.assert_close(
        graph.adjacency.to_dense(), torch.tensor(expected, dtype=torch.float64), atol=1e-15, rtol=0
    )


def test_an_isolated_node_keeps_its_features() -> None:
    graph = made(3, [(0, 2)])
    assert torch.equal(graph.propagated[1], graph.x[1])
    assert graph.adjacency.to_dense()[1].tolist() == [0, 1, 0]
    alone = made(1, [])
    assert torch.equal(alone.propagated, alone.x)
    assert alone.edge_index.shape == (2, 0)


@given(graphs(), st.sampled_from([torch.float32, torch.float64]))
def test_the_adjacency_is_the_dense_formula(shape: tuple[int, Edges], dtype: torch.dtype) -> None:
    graph, expected = made(*shape, dtype=dtype), dense(*shape)
    exact = 1e-6 if dtype == torch.float32 else 1e-14
    assert graph.adjacency.dtype == dtype
    np.testing.assert_allclose(graph.adjacency.to_dense().numpy(), expected, atol=exact, rtol=0)
    assert torch.equal(graph.adjacency.to_dense(), graph.adjacency.to_dense().T)
    np.testing.assert_allclose(graph.propagated.numpy(), expected @ graph.x.numpy(), atol=10 * exact, rtol=0)


@given(graphs())
def test_the_adjacency_holds_in_torchs_own_judgement(shape: tuple[int, Edges]) -> None:
    adjacency = made(*shape).adjacency
    torch.sparse_csr_tensor(
        adjacency.crow_indices(),
        adjacency.col_indices(),
        adjacency.values(),
        adjacency.shape,
        check_invariants=True,
    )
    assert len(adjacency.values()) == shape[0] + 2 * len(shape[1])


@given(graphs())
def test_propagation_and_its_gradient_are_the_dense_ones(shape: tuple[int, Edges]) -> None:
    graph, matrix = made(*shape), torch.from_numpy(dense(*shape))
    weights = torch.randn(graph.x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, expected = graph.x.clone().requires_grad_(), graph.x.clone().requires_grad_()
    moved = propagate(graph.adjacency, propagate(graph.adjacency, found).tanh())
    dense_moved = matrix @ (matrix @ expected).tanh()
    torch.testing.assert_close(moved, dense_moved, atol=1e-13, rtol=0)
    (moved * weights).sum().backward()  # type: ignore[no-untyped-call]
    (dense_moved * weights).sum().backward()  # type: ignore[no-untyped-call]
    assert found.grad is not None
    torch.testing.assert_close(found.grad, expected.grad, atol=1e-13, rtol=0)


@given(graphs())
def test_pytorch_geometric_normalises_alike(shape: tuple[int, Edges]) -> None:
    graph = made(*shape)
    edges, weights = gcn_norm(graph.edge_index, num_nodes=shape[0], dtype=torch.float64)
    found = torch.zeros(shape[0], shape[0], dtype=torch.float64)
    found[edges[1], edges[0]] = weights
    torch.testing.assert_close(found, graph.adjacency.to_dense(), atol=1e-14, rtol=0)


@given(graphs())
def test_the_edges_are_those_it_was_made_of(shape: tuple[int, Edges]) -> None:
    nodes, edges = shape
    graph = made(nodes, edges)
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_index.T.tolist() == sorted([a, b] for pair in edges for a, b in (pair, pair[::-1]))
    starts = [sum(int(source) < node for source in graph.edge_index[0]) for node in range(nodes + 1)]
    again = Graph.of(graph.x, torch.tensor(starts), graph.edge_index[1])
    assert torch.equal(again.adjacency.to_dense(), graph.adjacency.to_dense())


def test_the_first_step_is_taken_once_whoever_asks() -> None:
    graph = made(4, [(0, 1), (1, 2), (2, 3)])
    one, other = graph.asking(torch.tensor([0])), graph.asking(torch.tensor([1, 2]))
    assert graph.propagated is graph.propagated is one.propagated is other.propagated
    assert one.asking(torch.tensor([3])).propagated is graph.propagated


def test_it_is_asked_about_some_nodes_in_some_order() -> None:
    graph = made(4, [(0, 1), (1, 2), (2, 3)])
    values = torch.arange(8.0).view(4, 2)
    assert graph.asked(values) is values
    asking = graph.asking(torch.tensor([3, 1]))
    assert asking.asked(values).tolist() == [[6, 7], [2, 3]]
    assert asking.asking(torch.tensor([0])).asked(values).tolist() == [[0, 1]]
    assert graph.asked(values) is values
    assert graph.asking(torch.tensor([], dtype=torch.int64)).asked(values).shape == (0, 2)
    assert asking.x is graph.x
    assert asking.adjacency is graph.adjacency


def test_carrying_other_features_it_asks_about_the_same_nodes() -> None:
    graph = made(3, [(0, 1), (1, 2)]).asking(torch.tensor([2, 0]))
    x = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)
    other = graph.carrying(x)
    assert other.x is x
    assert other.asked(x).tolist() == [[0], [1]]
    assert other.propagated.squeeze(1).tolist() == pytest.approx([1 / 2, 1 / math.sqrt(6), 0])
    assert graph.propagated.shape == (3, 3)  # and the one before is as it was


def test_in_another_precision() -> None:
    edges: Edges = [(0, 1), (1, 2), (1, 3)]
    graph = made(4, edges, dtype=torch.float32).asking(torch.tensor([3, 0]))
    assert graph.to(torch.float32) is graph
    double = graph.to(torch.float64)
    assert double.x.dtype == double.adjacency.dtype == double.propagated.dtype == torch.float64
    assert torch.equal(double.x, graph.x.double())
    assert torch.equal(double.edge_index, graph.edge_index)
    values = torch.arange(4.0)
    assert double.asked(values).tolist() == [3, 0]
    exact: Tensor = graph.adjacency.to_dense().double() @ graph.x.double()
    torch.testing.assert_close(double.propagated, exact, atol=1e-14, rtol=0)
