import gzip
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.data import Data

from framp.config import Config
from framp.data import GRAPH_SOURCES, GraphSet, graph_files, load_graph, located
from framp.data.block_model import generate
from framp.errors import ConfigError, DataError, FrampError
from framp.settings import DataConfig, SbmConfig

# a path 0-1-2-3-4 and the pair 5-6
EDGES = np.array([[0, 1, 2, 3, 5], [1, 2, 3, 4, 6]])
FEATURES = np.arange(21, dtype=np.float32).reshape(7, 3) / 8
LABELS = np.array([0, 1, 2, 2, 1, 0, 0])
EXPECTED = GraphSet.from_edges("expected", FEATURES, EDGES, LABELS).sha256


def load(source: str, path: Path | str, cache: Path, graph: str = "Cora") -> GraphSet:
    return load_graph(DataConfig(source=source, path=str(path), graph=graph), SbmConfig(), cache)


BEFORE = 504  # torch_geometric's reader wants 500 nodes between the first and the last
NUMBERS = np.array([0, 1, 2, 3, BEFORE, BEFORE + 1, BEFORE + 2])  # of the seven nodes; all others are alone


def write_planetoid(folder: Path, graph: str = "cora") -> Path:
    """Write the seven nodes, the last three as the test nodes, and these not in their order."""
    folder.mkdir(parents=True)
    one_hot, order = np.eye(3, dtype=np.int32)[LABELS], [6, 4, 5]
    features = np.concatenate([FEATURES[:4], np.zeros((BEFORE - 4, 3), np.float32)])
    neighbours: dict[int, list[int]] = {node: [] for node in range(BEFORE + 3)}
    for one, other in NUMBERS[EDGES].T.tolist():
        neighbours[one].append(other)
        neighbours[other] += [one, one]  # twice, as in the published files
    neighbours[2].append(2)
    parts: dict[str, Any] = {
        "x": csr_matrix(features[:2]),
        "y": one_hot[:2],
        "allx": csr_matrix(features),
        "ally": np.concatenate([one_hot[:4], one_hot[[0] * (BEFORE - 4)]]),
        "tx": csr_matrix(FEATURES[order]),
        "ty": one_hot[order],
        "graph": neighbours,
    }
    for part, value in parts.items():
        (folder / f"ind.{graph}.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / f"ind.{graph}.test.index").write_text("".join(f"{NUMBERS[node]}\n" for node in order))
    return folder


def write_tables(folder: Path) -> Path:
    """Write OGB's raw folder: what FRAMP reads, and what else OGB's own loader asks for."""
    folder.mkdir(parents=True)
    tables: dict[str, Any] = {
        "edge": EDGES.T,
        "node-feat": FEATURES,
        "node-label": LABELS[:, None],
        "node_year": np.full((7, 1), 2020),
        "num-node-list": [[7]],
        "num-edge-list": [[5]],
    }
    for name, rows in tables.items():
        text = "".join(",".join(map(str, row)) + "\n" for row in np.asarray(rows).tolist())
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def saved_data(**parts: Any) -> Data:
    given = {"x": torch.tensor(FEATURES), "edge_index": torch.tensor(EDGES), "y": torch.tensor(LABELS)}
    return Data(**(given | parts))


def listing(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def no_reading(*arguments: Any) -> Any:
    raise AssertionError("read again")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **more: Any) -> Any:
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_the_block_model_is_generated_and_not_cached(cache: Path) -> None:
    settings = SbmConfig(nodes=50, edges=100, blocks=10)
    graph = load_graph(DataConfig(source="sbm"), settings, cache)
    assert graph.sha256 == generate(settings).sha256
    assert not cache.exists()
    assert GRAPH_SOURCES == ("sbm", "planetoid", "arxiv", "pyg")
    with pytest.raises(ConfigError, match=r"data.source is digits, which holds no graph; set it to one of: sbm, pl"):
        load_graph(DataConfig(), settings, cache)


@pytest.mark.parametrize(("below", "graph"), [("", "Cora"), ("raw", "PubMed"), ("CiteSeer/raw", "CiteSeer")])
def test_planetoids_files_are_read_where_they_lie(tmp_path: Path, cache: Path, below: str, graph: str) -> None:
    write_planetoid(tmp_path / "mine" / below, graph.lower())
    before = listing(tmp_path / "mine")
    found = load("planetoid", tmp_path / "mine", cache, graph)
    assert (found.name, found.classes, found.sha256) == (graph, 3, EXPECTED)
    assert isinstance(found.features, np.memmap)
    assert listing(tmp_path / "mine") == before
    assert list(cache.iterdir()) == [found.folder]


def test_the_second_time_nothing_is_read_and_other_content_is(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_planetoid(tmp_path / "mine")
    first = load("planetoid", folder, cache)
    with monkeypatch.context() as patch:
        patch.setattr(graph_files, "read_planetoid", no_reading)
        patch.setitem(sys.modules, "torch_geometric", None)
        moved = folder.rename(tmp_path / "moved")
        assert load("planetoid", moved, cache).folder == first.folder
        monkeypatch.setenv("FRAMP_CACHE", str(cache))
        assert load_graph(DataConfig(source="planetoid", path=str(moved)), SbmConfig()).folder == first.folder
    (moved / "ind.cora.ally").write_bytes(pickle.dumps(np.eye(3)[[0, 0, 0, 2] * (BEFORE // 4)]))
    assert load("planetoid", moved, cache).labels.tolist() == [0, 0, 0, 2, 1]
    assert first.folder is not None
    (first.folder / "labels.npy").write_bytes((first.folder / "labels.npy").read_bytes()[:-8])
    with pytest.raises(DataError, match=f"the graph in {first.folder} is damaged"):
        load("planetoid", write_planetoid(tmp_path / "again"), cache)


def test_files_of_planetoid_that_are_missing_or_broken_are_named(tmp_path: Path, cache: Path) -> None:
    folder = write_planetoid(tmp_path / "mine" / "raw")
    with pytest.raises(DataError, match=r"no ind.pubmed.x in .*mine nor in its raw/, PubMed/raw/; name the folder"):
        load("planetoid", tmp_path / "mine", cache, "PubMed")
    (folder / "ind.cora.graph").write_bytes(b"no pickle")
    with pytest.raises(DataError, match=rf"cannot read the files of Cora in {folder}: .+; fetch them again") as caught:
        load("planetoid", tmp_path / "mine", cache)
    assert "\n" not in str(caught.value)
    (folder / "ind.cora.allx").unlink()
    (folder / "ind.cora.graph").unlink()
    with pytest.raises(DataError, match=f"there is no ind.cora.allx in {folder}, beside its other files; put it there"):
        load("planetoid", tmp_path / "mine", cache)
    assert not cache.exists()


@pytest.mark.parametrize("below", ["", "raw", "ogbn_arxiv/raw", "arxiv/raw"])
def test_ogbs_tables_are_read_without_any_extra(
    tmp_path: Path, cache: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path / "mine" / below)
    before = listing(tmp_path / "mine")
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.setitem(sys.modules, "ogb", None)
    found = load("arxiv", tmp_path / "mine", cache)
    assert (found.name, found.classes, found.sha256) == ("arxiv", 3, EXPECTED)
    assert listing(tmp_path / "mine") == before
    monkeypatch.setattr(graph_files, "read_tables", no_reading)
    assert load("arxiv", tmp_path / "mine", cache).folder == found.folder


@pytest.mark.parametrize(
    ("table", "content", "message"),
    [
        ("edge", b"0,1\n1,x\n", r"cannot read .*edge.csv.gz: .+; fetch this file again"),
        ("edge", b"", r"cannot read .*edge.csv.gz: .+; fetch"),
        ("edge", b"0,9\n", "arxiv: edge 0 joins nodes 0 and 9"),
        ("node-feat", b"1\n2\n", r"arxiv: labels are int64 of shape .7. for 2 nodes"),
        ("node-label", b"1.5\n" * 7, r"cannot read .*node-label.csv.gz: .+; fetch"),
        ("node-label", b"1,0\n" * 7, r"arxiv: labels are int64 of shape .7, 2."),
        ("node-label", None, "cannot read .*node-label.csv.gz: .+; fetch this file again"),
    ],
)
def test_broken_tables_are_named(tmp_path: Path, cache: Path, table: str, content: bytes | None, message: str) -> None:
    file = write_tables(tmp_path / "mine") / f"{table}.csv.gz"
    file.write_bytes(file.read_bytes()[:-9] if content is None else gzip.compress(content))
    with pytest.raises(DataError, match=message) as caught:
        load("arxiv", tmp_path / "mine", cache)
    assert "\n" not in str(caught.value)
    file.unlink()
    with pytest.raises(DataError, match=f"there is no {file.name} in .*mine, beside its other files; put it there"):
        load("arxiv", tmp_path / "mine", cache)


@pytest.mark.parametrize("below", ["", "ogbn_arxiv"])
def test_what_ogb_has_processed_is_read_without_ogb(
    tmp_path: Path, cache: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    file = tmp_path / "mine" / below / "processed" / "geometric_data_processed.pt"
    file.parent.mkdir(parents=True)
    torch.save((saved_data(y=torch.tensor(LABELS)[:, None]), None), file)
    before = listing(tmp_path / "mine")
    found = load("arxiv", tmp_path / "mine", cache)
    assert (found.name, found.sha256) == ("arxiv", EXPECTED)
    assert listing(tmp_path / "mine") == before


def test_ogbs_own_loader_fetches_once_and_asks_nobody(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its download is replaced by a tiny folder; reading, processing and loading back are OGB's."""
    loader = graph_files._without_update_check().PygNodePropPredDataset
    fetched: list[str] = []

    def download(self: Any) -> None:
        fetched.append(self.root)
        raw = Path(self.raw_dir)
        raw.rmdir()
        write_tables(raw)
        (Path(self.root) / "RELEASE_v1.txt").touch()

    monkeypatch.setattr(loader, "download", download)
    found = load("arxiv", "", cache)
    assert (found.name, found.sha256) == ("arxiv", EXPECTED)
    assert (cache / "ogb" / "ogbn_arxiv" / graph_files.OGB_PROCESSED).is_file()
    assert load("arxiv", "", cache).folder == found.folder
    assert len(fetched) == 1
    assert [entry.name for entry in (cache / "ogb").iterdir()] == ["ogbn_arxiv"]
    assert capfd.readouterr() == ("", "")
    (cache / "ogb" / "ogbn_arxiv" / "raw" / "edge.csv.gz").unlink()
    with pytest.raises(DataError, match=r"there is no edge.csv.gz in the download .*raw; delete .*ogbn_arxiv and try"):
        load("arxiv", "", cache)


@pytest.mark.parametrize("how", ["refused", "question", "exit"])
def test_an_arxiv_out_of_reach_is_one_line(
    cache: Path, how: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from ogb.nodeproppred import dataset_pyg

    def decide(url: str) -> bool:
        print("much to say", file=sys.stderr)
        if how == "question":
            input("Will you proceed? (y/N)\n")
        return how != "exit"

    def fetch(url: str, folder: str) -> str:
        raise RuntimeError("Stopped downloading\ndue to interruption.")

    graph_files._without_update_check()
    monkeypatch.setattr(dataset_pyg, "decide_download", decide)
    monkeypatch.setattr(dataset_pyg, "download_url", fetch)
    screen = sys.stdin
    with pytest.raises(DataError, match=r"cannot download ogbn-arxiv to .* \(.+\); check the network") as caught:
        load("arxiv", "", cache)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    assert sys.stdin is screen
    assert list((cache / "ogb").iterdir()) == []


def test_planetoid_is_fetched_once_or_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_geometric.datasets import Planetoid

    with pytest.raises(
        DataError, match=r"cannot download Cora to .* \(.+\); check the network and that folder, or name"
    ):
        load("planetoid", "", cache)
    assert list((cache / "planetoid").iterdir()) == []
    fetched: list[str] = []

    def download(self: Any) -> None:
        fetched.append(self.name)
        Path(self.raw_dir).rmdir()
        write_planetoid(Path(self.raw_dir))

    monkeypatch.setattr(Planetoid, "download", download)
    assert load("planetoid", "", cache).sha256 == load("planetoid", "", cache).sha256 == EXPECTED
    assert fetched == ["Cora"]
    assert (cache / "planetoid" / "Cora" / "raw" / "ind.cora.x").is_file()


def test_a_download_that_another_process_finished_first_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_geometric.datasets import Planetoid

    def overtaken(self: Any) -> None:
        write_planetoid(cache / "planetoid" / "Cora" / "raw")
        Path(self.raw_dir).rmdir()
        write_planetoid(Path(self.raw_dir))

    monkeypatch.setattr(Planetoid, "download", overtaken)
    assert load("planetoid", "", cache).sha256 == EXPECTED
    assert [entry.name for entry in (cache / "planetoid").iterdir()] == ["Cora"]
    assert [entry.name for entry in (cache / "planetoid" / "Cora").iterdir()] == ["raw"]


def test_importing_ogb_starts_no_thread_and_asks_nobody() -> None:
    program = """
import socket, sys, threading
def refuse(*arguments, **more):
    raise SystemExit("network")
socket.create_connection = socket.getaddrinfo = refuse
started = []
start = threading.Thread.start
threading.Thread.start = lambda self: (started.append(self.name), start(self))
from framp.data import graph_files
with graph_files.libraries_silent():
    ogb = graph_files._without_update_check()
print(ogb.PygNodePropPredDataset.__name__, started, "outdated" in sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.split("\n")[0] == "PygNodePropPredDataset [] False"
    assert shown.stderr == ""


def test_a_module_that_is_already_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = object()
    monkeypatch.setitem(sys.modules, "outdated", before)
    graph_files._without_update_check()
    assert sys.modules["outdated"] is before


@pytest.mark.parametrize(
    "content",
    [
        saved_data(),
        [saved_data()],
        (saved_data(), None),
        (saved_data(), {"x": torch.tensor([0, 7]), "y": torch.tensor([0, 7])}),
        (saved_data().to_dict(), None, Data),
        saved_data().to_dict(),
        saved_data(x=torch.tensor(FEATURES).to_sparse(), train_mask=torch.tensor(LABELS) == 1),
    ],
    ids=["data", "list", "pair", "slices", "fields", "dict", "sparse"],
)
def test_a_saved_data_is_read_however_it_is_wrapped(tmp_path: Path, cache: Path, content: Any) -> None:
    torch.save(content, tmp_path / "my graph.pt")
    found = load("pyg", tmp_path / "my graph.pt", cache)
    assert (found.name, found.sha256) == ("my graph", EXPECTED)
    assert list(cache.iterdir()) == [found.folder]


def test_what_torch_holds_safe_is_as_before(tmp_path: Path, cache: Path) -> None:
    torch.save(saved_data(), tmp_path / "mine.pt")
    before = torch.serialization.get_safe_globals()
    load("pyg", tmp_path / "mine.pt", cache)
    assert set(torch.serialization.get_safe_globals()) == set(before)


def test_the_warnings_about_sparse_features_are_kept_off_the_screen(tmp_path: Path, cache: Path) -> None:
    with graph_files.libraries_silent():
        torch.save(saved_data(x=torch.tensor(FEATURES).to_sparse_csr()), tmp_path / "mine.pt")
    assert load("pyg", tmp_path / "mine.pt", cache).sha256 == EXPECTED


class Mine:
    """What no reader of tensors alone can know."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (saved_data(extra=Mine()), "cannot read .*mine.pt: .* more than its tensors; save a plain Data.x, edge_index"),
        (b"text", "cannot read .*mine.pt: it is no saved Data, is damaged, or .*; save a plain Data"),
        (b"", "cannot read .*mine.pt: it is no saved Data, is damaged, or .*; save a plain Data"),
        ([saved_data(), saved_data()], "mine.pt: it holds a list of 2; save a plain"),
        ((saved_data(), {"x": torch.tensor([0, 3, 7])}), "mine.pt: it holds several graphs; save a plain"),
        (saved_data(x=None), "mine: the Data has no x; set data.x to"),
        (torch.ones(3), "mine: the Data has no x; set data.x to"),
        (saved_data(y=torch.zeros(7)), "mine: labels are float32"),
    ],
)
def test_a_file_that_holds_no_plain_data_is_refused(tmp_path: Path, cache: Path, content: Any, message: str) -> None:
    file = tmp_path / "mine.pt"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    with pytest.raises(DataError, match=message) as caught:
        load("pyg", file, cache)
    assert "\n" not in str(caught.value)
    assert not cache.exists()


@pytest.mark.parametrize("source", ["planetoid", "arxiv", "pyg"])
def test_paths_that_lead_nowhere_are_refused(tmp_path: Path, cache: Path, source: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"data.path .*nowhere does not exist; name"):
        load(source, tmp_path / "nowhere", cache)
    with pytest.raises(DataError, match=r"data.path ~/nowhere/at/all does not exist; name"):
        load(source, "~/nowhere/at/all", cache)
    wrong, what = (tmp_path, "is a folder") if source == "pyg" else (tmp_path / "file", "is a file")
    with pytest.raises(DataError, match=f"data.path {wrong} {what}; name"):
        load(source, wrong, cache)
    if source != "pyg":
        with pytest.raises(DataError, match=rf"there is no .* in {tmp_path} nor in its .*; name the folder of the raw"):
            load(source, tmp_path, cache)
    else:
        with pytest.raises(ConfigError, match=r"data.path is empty; name a file"):
            load(source, "", cache)


def test_a_missing_extra_is_named(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(saved_data(), tmp_path / "mine.pt")
    write_planetoid(tmp_path / "mine")
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", None)
    for source, path in (
        ("planetoid", tmp_path / "mine"),
        ("pyg", tmp_path / "mine.pt"),
        ("planetoid", ""),
        ("arxiv", ""),
    ):
        with pytest.raises(
            FrampError, match=r"the package torch_geometric.*, .*pip install \"framp\[graph\]\""
        ) as caught:
            load(source, path, cache)
        assert "\n" not in str(caught.value)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(FrampError, match=r"the package ogb.*, .*pip install \"framp\[graph\]\""):
        load("arxiv", "", cache)


def test_local_paths_are_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "mine.pt").touch()
    monkeypatch.chdir(tmp_path)
    for source, path, expected in (
        ("planetoid", "folder", str(tmp_path / "folder")),
        ("arxiv", "./folder", str(tmp_path / "folder")),
        ("pyg", "mine.pt", str(tmp_path / "mine.pt")),
        ("pyg", "nowhere.pt", "nowhere.pt"),
        ("planetoid", "", ""),
        ("sbm", "folder", "folder"),
    ):
        config = Config().with_values({"data.source": source, "data.path": path})
        assert located(config).data.path == expected


@pytest.mark.slow
@pytest.mark.skipif("FRAMP_TEST_DATA" not in os.environ, reason="FRAMP_TEST_DATA names no folder with planetoid")
def test_cora_is_what_it_should_be(cache: Path) -> None:
    graph = load("planetoid", Path(os.environ["FRAMP_TEST_DATA"]) / "planetoid", cache)
    assert (len(graph), graph.edges, graph.features.shape[1], graph.classes) == (2485, 5069, 1433, 7)
    assert set(np.unique(graph.features)) == {0, 1}
    assert np.bincount(graph.labels).tolist() == [344, 214, 406, 726, 379, 285, 131]
