"""Federations over a graph of the user's own."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from framp.config import Config
from framp.data import Graph
from framp.errors import ConfigError, DataError
from framp.federation import Federation

SETTINGS: dict[str, Any] = {
    "partition.kind": "metis",
    "partition.clients": 4,
    "federation.participants": 3,
    "federation.budgets": ["1/4", "1"],
    "federation.shares": [0.5, 0.5],
    "model.name": "gcn",
    "model.hidden": 12,
    "generation.hidden": 4,
    "training.steps": 2,
}
GUIDE = Path(__file__).parent.parent / "docs" / "graphs.md"


class Own(nn.Module):
    """A network of the user's own, of PyTorch Geometric's layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(16, 12), GCNConv(12, 8)
        self.classifier = nn.Linear(8, 4)

    def features(self, graph: Graph) -> Tensor:
        hidden = self.first(graph.x, graph.edge_index).relu()
        return graph.asked(self.second(hidden, graph.edge_index).relu())

    def head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits


def ring(nodes: int = 160) -> Data:
    """A ring whose classes are its quarters; a node's features are noise and its class."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.arange(nodes)
    y = 4 * numbers // nodes
    x = torch.randn(nodes, 16, generator=generator) + 3 * nn.functional.one_hot(y, 16)
    return Data(x=x, edge_index=torch.stack([numbers, (numbers + 1) % nodes]), y=y)


@pytest.mark.parametrize("recipe", ["framp", "fiarse", "heterofl", "fedrolex", "fedavg"])
def test_a_network_of_the_users_own(recipe: str) -> None:
    with Federation.from_graph(ring(), Config().with_values({**SETTINGS, "recipe": recipe}), Own) as federation:
        reports = list(federation.train(2))
        found = federation.evaluate()
        model = federation.personal_model(0)
    assert [report.accepted for report in reports] == [3, 3]
    assert len(found.clients) == 4
    small = sum(p.numel() for p in model.parameters())
    assert (small < sum(p.numel() for p in Own().parameters())) == (recipe in ("heterofl", "fedrolex"))


def test_the_networks_of_the_package() -> None:
    settings = {**SETTINGS, "recipe": "scalefl", "training.steps": 30}
    with Federation.from_graph(ring(), Config().with_values(settings)) as federation:
        first, *_, last = federation.train(6)
        assert federation.server.layout.maskable == (16 + 1) * 12 + 2 * (12 + 1) * 12 + 3 * (12 + 1) * 4
    assert first.loss is not None
    assert last.loss is not None
    assert last.loss < first.loss


def test_the_guides_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    scope: dict[str, Any] = {"data": ring(400)}
    exec(compile(example, str(GUIDE), "exec"), scope)
    assert scope["report"].round == 10


def test_what_is_no_graph_is_refused() -> None:
    config = Config().with_values(SETTINGS)
    with pytest.raises(DataError, match="x"):
        Federation.from_graph(Data(edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1])), config)
    with pytest.raises(ConfigError, match=r"model\.name 'cnn' does not take a graph; set it to gcn"):
        Federation.from_graph(ring(), config.with_values({"model.name": "cnn"}))
