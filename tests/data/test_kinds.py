"""Blank samples: what networks are tried on before there are data."""

import pytest
import torch

from framp.data.graph import Graph
from framp.data.kinds import Images, Nodes
from framp.models import GRAPH_NETWORKS, IMAGE_NETWORKS, NamedArchitecture, feature_width
from framp.settings import ModelConfig


def test_a_blank_graph_is_a_path_asked_about_two_of_its_three_nodes() -> None:
    blank = Nodes(5).blank(torch.float64)
    assert isinstance(blank, Graph)
    across = 6**-0.5
    expected = [[1 / 2, across, 0], [across, 1 / 3, across], [0, across, 1 / 2]]
    torch.testing.assert_close(blank.adjacency.to_dense(), torch.tensor(expected, dtype=torch.float64))
    assert blank.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert blank.asked(torch.arange(3)).tolist() == [0, 1]
    assert Nodes(5).entrance(blank) is blank.x
    assert torch.equal(blank.x, torch.zeros(3, 5, dtype=torch.float64))


def test_blank_graphs_of_any_size_are_paths() -> None:
    assert Nodes(5).blank(torch.float32, 4).edge_index.tolist() == [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
    assert Nodes(5).blank(torch.float32, 1).adjacency.to_dense().tolist() == [[1.0]]


def test_blank_images_are_two() -> None:
    blank = Images(3, 4, 5).blank(torch.float64)
    assert torch.equal(blank, torch.zeros(2, 3, 4, 5, dtype=torch.float64))
    assert Images(3, 4, 5).entrance(blank) is blank


KINDS = [(name, Images(3, 9, 7)) for name in IMAGE_NETWORKS] + [(name, Nodes(5)) for name in GRAPH_NETWORKS]


@pytest.mark.parametrize(("name", "kind"), KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_network_takes_the_blank_samples_of_its_kind(name: str, kind: Images | Nodes, dtype: torch.dtype) -> None:
    model = NamedArchitecture(ModelConfig(name=name, width=2, hidden=6), kind, 3)().to(dtype)
    logits = model(kind.blank(dtype))
    assert (logits.shape, logits.dtype) == ((2, 3), dtype)
    assert feature_width(model, kind, 3) == {"cnn": 8, "resnet18": 16, "gcn": 6}[name]
