import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from framp.data import GraphSet
from framp.errors import DataError

FEATURES = np.arange(14, dtype=np.float64).reshape(7, 2) / 4
LABELS = np.array([0, 2, 1, 1, 0, 2, 2], dtype=np.int32)
# 0-1 both ways, 1-3 300 times, 3-0, a loop at 3, 3-5; 2-4 in a component of its own; 6 alone
EDGES = np.array([[0, 1, 3, 3, 5, 4] + [1] * 300, [1, 0, 0, 3, 3, 2] + [3] * 300])


def small(name: str = "small") -> GraphSet:
    return GraphSet.from_edges(name, FEATURES, EDGES, LABELS)


def test_the_largest_component_by_hand() -> None:
    graph = small()
    assert (graph.name, graph.classes, len(graph), graph.edges, graph.folder) == ("small", 3, 4, 4, None)
    for array, kind, expected in (
        (graph.features, np.float32, [[0, 0.25], [0.5, 0.75], [1.5, 1.75], [2.5, 2.75]]),  # nodes 0, 1, 3, 5
        (graph.labels, np.int64, [0, 2, 1, 2]),
        (graph.starts, np.int64, [0, 2, 4, 7, 8]),
        (graph.neighbours, np.int32, [1, 2, 0, 2, 0, 1, 3, 2]),
    ):
        assert array.dtype == kind
        assert array.tolist() == expected
    assert graph.adjacency.toarray().tolist() == [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]]


def test_a_connected_graph_is_kept_whole_and_classes_may_be_absent() -> None:
    graph = GraphSet.from_edges("path", FEATURES[:3], np.array([[2, 1], [1, 0]], np.uint8), LABELS[:3], classes=9)
    assert graph.neighbours.tolist() == [1, 0, 2, 1]
    assert graph.classes == 9


def test_without_edges_one_node_is_left(tmp_path: Path) -> None:
    graph = GraphSet.from_edges("alone", FEATURES, np.zeros((2, 0), int), LABELS)
    assert (len(graph), graph.edges, graph.starts.tolist()) == (1, 0, [0, 0])
    assert graph.save(tmp_path / "set").verify().neighbours.shape == (0,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": FEATURES[0]}, r"node features are float64 of shape \[2\]; give numbers"),
        ({"features": FEATURES[:, :0]}, r"node features are float64 of shape \[7, 0\]"),
        ({"features": FEATURES > 1}, "node features are bool"),
        ({"labels": LABELS[:3]}, r"labels are int32 of shape \[3\] for 7 nodes; give one class number to each"),
        ({"labels": LABELS / 1}, r"labels are float64 of shape \[7\]"),
        ({"edges": EDGES.T}, r"edges are int64 of shape \[306, 2\]; give pairs of node numbers as \[2, edges\]"),
        ({"edges": EDGES / 1}, "edges are float64"),
        ({"edges": np.array([[0, 3], [1, 7]])}, "edge 1 joins nodes 3 and 7, but the nodes are numbered from 0 to 6"),
        ({"edges": np.array([[-1], [1]])}, "edge 0 joins nodes -1 and 1"),
        ({"features": np.where(FEATURES == 3, np.nan, FEATURES)}, "of 1 nodes are not finite, .* node 6; replace"),
        ({"features": np.full((7, 1), 1e39)}, "of 7 nodes are not finite, the first of them node 0"),
        ({"labels": LABELS - 1}, "label out of range: -1 at node 0, with 2 classes; number the classes 0 to 1"),
        ({"labels": np.where(LABELS == 2, 10**6, LABELS)}, "label 1000000 at node 1, but there are only .* correct it"),
        ({"classes": 2}, "label out of range: 2 at node 1, with 2 classes"),
    ],
)
def test_malformed_arrays_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"features": FEATURES, "edges": EDGES, "labels": LABELS} | change
    with pytest.raises(DataError, match=message) as caught:
        GraphSet.from_edges("mine", **arguments)
    assert str(caught.value).startswith("mine: ")
    assert "\n" not in str(caught.value)


def test_the_hash_follows_each_part_and_not_the_name() -> None:
    changed = FEATURES.copy()
    changed[0, 0] = 7
    others = [
        GraphSet.from_edges("small", changed, EDGES, LABELS),
        GraphSet.from_edges("small", FEATURES.reshape(7, 2)[:, ::-1], EDGES, LABELS),
        GraphSet.from_edges("small", FEATURES, EDGES, np.array([0, 2, 1, 1, 0, 1, 2])),
        GraphSet.from_edges("small", FEATURES, EDGES[:, 1:-300], LABELS),
        GraphSet.from_edges("small", FEATURES, np.concatenate([EDGES, [[0], [5]]], axis=1), LABELS),
    ]
    assert len({small().sha256, *(graph.sha256 for graph in others)}) == 6
    assert small("other").sha256 == small().sha256
    backwards = GraphSet.from_edges("small", FEATURES.astype(np.float32), EDGES[::-1, ::-1], LABELS.astype(np.uint8))
    assert backwards.sha256 == small().sha256


def test_saving_and_opening_keeps_everything(tmp_path: Path) -> None:
    graph = small()
    for found in (graph.save(tmp_path / "deep" / "set"), GraphSet.open(tmp_path / "deep" / "set").verify()):
        assert (found.name, found.classes, found.sha256) == (graph.name, graph.classes, graph.sha256)
        assert found.folder == tmp_path / "deep" / "set"
        for part in ("features", "labels", "starts", "neighbours"):
            assert isinstance(getattr(found, part), np.memmap)
            np.testing.assert_array_equal(getattr(found, part), getattr(graph, part))
        assert (found.adjacency != graph.adjacency).nnz == 0
    assert [entry.name for entry in (tmp_path / "deep").iterdir()] == ["set"]
    other = GraphSet.from_edges("other", FEATURES, EDGES[:, 1:3], LABELS)
    with pytest.raises(DataError, match="holds another graph, small; delete this folder"):
        other.save(tmp_path / "deep" / "set")


def test_a_pickle_carries_only_the_path_or_else_the_arrays(tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(small()))
    assert again.folder is None
    assert again.verify().neighbours.tolist() == small().neighbours.tolist()
    many = GraphSet.from_edges(
        "path", np.zeros((900, 9)), np.stack([np.arange(899), np.arange(1, 900)]), np.zeros(900, int)
    )
    carried = pickle.dumps(many.save(tmp_path / "set"))
    assert len(carried) < 1000
    assert isinstance(pickle.loads(carried).neighbours, np.memmap)


@pytest.mark.parametrize("file", ["features.npy", "labels.npy", "starts.npy", "neighbours.npy", "meta.json"])
@pytest.mark.parametrize("left", [0.0, 0.5, 0.95, None])
def test_a_damaged_folder_is_named_with_the_remedy(tmp_path: Path, file: str, left: float | None) -> None:
    small().save(tmp_path / "set")
    victim = tmp_path / "set" / file
    content = victim.read_bytes()
    victim.unlink()
    if left is not None:
        victim.write_bytes(content[: int(len(content) * left)])
    with pytest.raises(DataError, match=r"the graph in .*set is damaged \(.+\); delete this folder") as caught:
        GraphSet.open(tmp_path / "set")
    assert "\n" not in str(caught.value)


def test_other_content_of_the_same_form_is_found_out(tmp_path: Path) -> None:
    small().save(tmp_path / "set")
    file = tmp_path / "set" / "features.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x3f")
    with pytest.raises(DataError, match=r"the graph in .*set is damaged \(wrong checksum\); delete this folder"):
        GraphSet.open(tmp_path / "set").verify()


@pytest.mark.parametrize(
    ("key", "array", "reason"),
    [
        ("features", np.zeros((4, 2)), "features.npy is float64 with 2 axes, expected float32, 2"),
        ("features", np.zeros((3, 2), np.float32), "differ in length"),
        ("labels", np.array([0, 2, 1, 3]), "a label is not one of 3 classes"),
        ("labels", np.array([0, 2, 1, -1]), "a label is not one of 3 classes"),
        ("starts", np.array([1, 2, 4, 7, 8]), "starts do not span the neighbours"),
        ("neighbours", np.zeros(9, np.int32), "starts do not span the neighbours"),
        ("neighbours", np.zeros((8, 1), np.int32), "neighbours.npy is int32 with 2 axes, expected int32, 1"),
    ],
)
def test_a_folder_that_contradicts_itself_is_damaged(tmp_path: Path, key: str, array: np.ndarray, reason: str) -> None:
    small().save(tmp_path / "set")
    np.save(tmp_path / "set" / f"{key}.npy", array)
    meta = json.loads((tmp_path / "set" / "meta.json").read_text())
    meta["shapes"][key] = list(array.shape)
    (tmp_path / "set" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(DataError, match=rf"is damaged \(.*{reason}\); delete"):
        GraphSet.open(tmp_path / "set")


def data(**parts: Any) -> Data:
    given = {"x": torch.tensor(FEATURES), "edge_index": torch.tensor(EDGES), "y": torch.tensor(LABELS)}
    return Data(**(given | parts))


@pytest.mark.parametrize(
    "same",
    [
        data(),
        data(y=torch.tensor(LABELS)[:, None]),
        data(x=torch.tensor(FEATURES).to_sparse(), edge_index=torch.tensor(EDGES).flip(0)),
        data(x=torch.tensor(FEATURES).to(torch.bfloat16)),
        data(x=torch.tensor(FEATURES).requires_grad_()),
    ],
    ids=["plain", "column", "sparse", "bfloat16", "gradient"],
)
def test_a_pyg_graph_is_the_same_as_its_arrays(same: Data) -> None:
    graph = GraphSet.from_pyg("small", same)
    assert (graph.sha256, graph.classes) == (small().sha256, 3)
    assert GraphSet.from_pyg("small", same, classes=5).classes == 5


def test_features_that_are_true_or_false_are_one_or_zero() -> None:
    graph = GraphSet.from_pyg("bits", data(x=torch.tensor(FEATURES) > 1))
    assert graph.features.tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (data(x=None), "mine: the Data has no x; set data.x to the features, numbers .nodes, features."),
        (data(edge_index=None), "mine: the Data has no edge_index; set data.edge_index to the edges, pairs of node"),
        (data(y=None), "mine: the Data has no y; set data.y to the labels, one class number to each node"),
        (HeteroData(), "the Data has no x"),
        (data(edge_index=torch.tensor(EDGES).T), r"edges are int64 of shape \[306, 2\]; give pairs"),
        (data(edge_index=torch.tensor([])), r"edges are float32 of shape \[0\]; give pairs"),
        (data(y=torch.eye(7)), r"labels are float32 of shape \[7, 7\] for 7 nodes; give one class number"),
        (data(y=torch.tensor(LABELS[:2])), r"labels are int32 of shape \[2\] for 7 nodes"),
        (data(x=torch.ones(7)), r"node features are float32 of shape \[7\]"),
    ],
)
def test_a_pyg_graph_that_lacks_something_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        GraphSet.from_pyg("mine", wrong)
    assert "\n" not in str(caught.value)


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_any_edges_make_a_sorted_symmetric_connected_graph(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    nodes, pairs = drawn
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = GraphSet.from_edges("any", np.arange(nodes)[:, None], edges, np.zeros(nodes, int))
    number = graph.features[:, 0].astype(int).tolist()  # of each kept node, before
    found = [graph.neighbours[start:end].tolist() for start, end in zip(graph.starts, graph.starts[1:], strict=False)]
    assert all(row == sorted(set(row)) for row in found)
    assert number == sorted(number)

    reached = [{node} for node in range(nodes)]
    for _ in range(nodes):
        for one, other in pairs:
            reached[one] = reached[other] = reached[one] | reached[other]
    assert len(number) == max(map(len, reached))
    assert set(number) in reached
    expected = {(one, other) for pair in pairs for one, other in (pair, pair[::-1]) if one != other and one in number}
    assert {(number[one], number[other]) for one, row in enumerate(found) for other in row} == expected
