"""The command line on graphs: what a user sees of them, and what is said to bad ones."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from framp.runs import results

SMALL = [
    *("--set", "sbm.nodes=300", "--set", "sbm.edges=900", "--set", "sbm.features=8", "--set", "sbm.classes=4"),
    *("--set", "sbm.blocks=8", "--set", "partition.clients=4", "--set", "federation.participants=3"),
    *("--set", "model.hidden=16", "--set", "generation.hidden=4", "--set", "training.steps=2"),
]


def write(path: Path, **changes: Any) -> Path:
    """A saved graph: a ring of twelve nodes."""
    nodes = torch.arange(12)
    parts = {"x": torch.eye(12), "edge_index": torch.stack([nodes, (nodes + 1) % 12]), "y": nodes % 2} | changes
    torch.save(Data(**parts), path)
    return path


def test_a_run_ends_with_the_same_table_as_images_do(tmp_path: Path, framp: Any) -> None:
    done = framp("run", "sbm", *SMALL, "--rounds", "2", "--out", tmp_path / "run")
    assert done.code == 0, done
    record = results.read(tmp_path / "run")
    cut = record["partition"]
    assert (cut["kind"], cut["edges"]) == ("metis", 900)
    assert 0 < cut["cut_edges"] < 450
    for word in ("Local", "1/64", "1/16", "1/4", "Union", "round 2", "best", "mean of last 2"):
        assert word in done.out
    assert f"Subgraphs by metis, which cut {100 * cut['cut_edges'] / 900:.1f} % of 900 edges." in done.out
    stored = json.loads((tmp_path / "run" / "partition.json").read_text())
    assert {key: stored[key] for key in ("kind", "edges", "cut_edges")} == cut


@pytest.mark.parametrize("kind", ["metis", "louvain", "random"])
def test_partition_tells_sizes_and_cut(kind: str, tmp_path: Path, framp: Any) -> None:
    arguments = ["partition", "sbm", *SMALL, "--set", f"partition.kind={kind}", "--out", tmp_path / kind]
    shown = framp(*arguments)
    assert shown.code == 0, shown
    assert kind in shown.out
    rows = list(csv.DictReader(io.StringIO((tmp_path / kind / "labels.csv").read_text())))
    assert sum(int(row["nodes"]) for row in rows if row["part"] == "train") == 300
    kept = sum(int(row["edges"]) for row in rows if row["part"] == "train")
    lost = sum(int(row["cut_edges"]) for row in rows if row["part"] == "train")
    assert kept + lost / 2 == 900
    assert (tmp_path / kind / "figures" / "labels.svg").read_text().startswith("<?xml")
    stored = json.loads((tmp_path / kind / "partition.json").read_text())
    assert framp(*arguments, "--json").json["sha256"] == stored["sha256"]


def test_methods_on_one_graph_are_compared(tmp_path: Path, framp: Any) -> None:
    arguments = ["compare", "sbm", *SMALL, "--rounds", "1", "--recipes", "framp,heterofl,scalefl", "--seeds", "0"]
    done = framp(*arguments, "--set", "model.hidden=32", "--out", tmp_path / "all")
    assert done.code == 0, done
    assert done.out.count("Subgraphs by metis") == 1
    arguments[arguments.index("framp,heterofl,scalefl")] = "framp,fedavg"
    more = framp(*arguments, "--set", "model.hidden=32", "--out", tmp_path / "all")
    assert more.code == 0, more
    assert "1 of 2 runs are there already" in more.out


def test_a_saved_graph_is_run(tmp_path: Path, framp: Any) -> None:
    settings = [*SMALL, "--set", "data.source=pyg", "--set", f"data.path={write(tmp_path / 'ring.pt')}"]
    settings += ["--set", "partition.clients=2", "--set", "federation.participants=2"]
    settings += ["--set", "federation.budgets=1/2,1", "--set", "federation.shares=.5,.5"]
    done = framp("run", "sbm", *settings, "--rounds", "1", "--out", tmp_path / "run")
    assert done.code == 0, done
    assert results.read(tmp_path / "run")["partition"]["edges"] == 12


def test_another_graph_under_the_same_path_is_neither_compared_nor_resumed(tmp_path: Path, framp: Any) -> None:
    """The same edges are cut in the same way, so the partition does not tell them apart."""
    settings = [*SMALL, "--set", "data.source=pyg", "--set", f"data.path={write(tmp_path / 'ring.pt')}"]
    settings += ["--set", "partition.clients=2", "--set", "federation.participants=2"]
    settings += ["--set", "federation.budgets=1/2,1", "--set", "federation.shares=.5,.5", "--rounds", "1"]
    arguments = ["compare", "sbm", *settings, "--out", tmp_path / "all", "--recipes"]
    assert framp(*arguments, "fiarse").code == 0
    write(tmp_path / "ring.pt", y=torch.arange(12) // 6)
    framp(*arguments, "fiarse,fedavg").refused("fiarse-seed0 was run over data", "the data have changed in between")
    assert not (tmp_path / "all" / "fedavg-seed0").exists()
    run = tmp_path / "all" / "fiarse-seed0"
    (run / "results.json").unlink()
    framp("resume", run).refused("the data have changed since the run in")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edge_index": torch.tensor([[0, 1], [1, 12]])}, ("edge 1", "12", "0 to 11")),
        ({"x": torch.full((12, 2), float("nan"))}, ("not finite", "node 0", "NaN")),
        ({"edge_index": torch.empty(2, 0, dtype=torch.int64)}, ("1 nodes", "4 clients", "partition.clients")),
        ({"y": torch.full((12,), -1)}, ("label out of range", "-1")),
    ],
)
def test_bad_graphs_are_one_line_and_leave_nothing(
    changes: dict[str, Any], words: tuple[str, ...], tmp_path: Path, framp: Any
) -> None:
    graph = write(tmp_path / "bad.pt", **changes)
    settings = [*SMALL, "--set", "data.source=pyg", "--set", f"data.path={graph}"]
    framp("run", "sbm", *settings, "--out", tmp_path / "run").refused(*words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["partition.clients=301"], ("300 nodes", "301 clients", "partition.clients")),
        (["partition.train_share=0.0001"], ("train", "partition.train_share", "raise")),
        (["partition.kind=dirichlet"], ("'dirichlet' deals out images", "metis, louvain or random")),
        (["model.name=cnn"], ("model.name 'cnn' does not take a graph", "gcn")),
        (["model.layers=1"], ("model.layers is 1", "at least 2")),
        (["data.augment=true"], ("data.augment", "images")),
        (["sbm.edges=200"], ("sbm.edges is 200", "299")),
    ],
)
def test_settings_that_no_graph_has(settings: list[str], words: tuple[str, ...], tmp_path: Path, framp: Any) -> None:
    given = [argument for setting in settings for argument in ("--set", setting)]
    framp("run", "sbm", *SMALL, *given, "--out", tmp_path / "run").refused(*words)
    assert not (tmp_path / "run").exists()


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framp: Any) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    framp("run", "sbm", *SMALL, "--out", tmp_path / "run").refused("pymetis", 'pip install "framp[graph]"')
    assert not (tmp_path / "run").exists()
