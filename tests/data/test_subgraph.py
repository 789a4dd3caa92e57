import numpy as np
import torch

from framp.data.graph import Graph
from framp.data.kinds import Nodes
from framp.data.subgraph import Subgraph


def two_subgraphs() -> Subgraph:
    """A pair of nodes of which the second is asked about, and a lone node that is asked about too."""
    pair = Graph.of(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1, 2]), torch.tensor([1, 0]))
    alone = Graph.of(torch.tensor([[5.0, 6.0]]), torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64))
    return Subgraph(
        [pair.asking(torch.tensor([1])), alone.asking(torch.tensor([0]))], [torch.tensor([7]), torch.tensor([2])]
    )


def test_samples_are_the_nodes_asked_about() -> None:
    samples = two_subgraphs()
    assert samples.kind == Nodes(2)
    assert samples.labels.tolist() == [7, 2]
    assert len(samples) == 2


def test_each_subgraph_is_one_batch_whatever_the_size_asked_for() -> None:
    samples = two_subgraphs()
    for batch in (1, 100):
        (pair, first), (alone, second) = samples.in_order(batch)
        assert pair is samples.graphs[0]
        assert alone is samples.graphs[1]
        assert (first.tolist(), second.tolist()) == ([7], [2])
        assert (pair.asked(pair.x).tolist(), alone.asked(alone.x).tolist()) == ([[3, 4]], [[5, 6]])


def test_in_another_precision_the_same_is_asked() -> None:
    (pair, labels), (alone, _) = two_subgraphs().in_order(1, torch.float64)
    assert pair.x.dtype == alone.adjacency.dtype == torch.float64
    assert pair.asked(pair.propagated).tolist() == (pair.adjacency.to_dense() @ pair.x)[1:].tolist()
    assert labels.tolist() == [7]


def test_nothing_is_drawn_for_a_shuffle() -> None:
    samples, order = two_subgraphs(), np.random.default_rng(0)
    shuffled = list(samples.shuffled(1, order, torch.float32))
    assert [graph is own for (graph, _), own in zip(shuffled, samples.graphs, strict=True)] == [True, True]
    assert [labels.tolist() for _, labels in shuffled] == [[7], [2]]
    assert order.random() == np.random.default_rng(0).random()
