"""Files of published graphs: read where they lie, or fetched by the libraries that publish them.

Nothing is written beside a user's files, and what the libraries print, warn of or ask is kept off the screen.
"""

import contextlib
import io
import os
import shutil
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from framp.data.graph_set import GraphSet
from framp.errors import DataError, FrampError
from framp.extras import needed

OGB_TABLES = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz")
OGB_PROCESSED = Path("processed", "geometric_data_processed.pt")


def planetoid_names(graph: str) -> tuple[str, ...]:
    """Return the names of the raw files of one of Planetoid's graphs."""
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return tuple(f"ind.{graph.lower()}.{part}" for part in parts)


def read_planetoid(raw: Path, graph: str) -> GraphSet:
    """Read one of Planetoid's graphs with torch_geometric's own reader."""
    with _readable(f"the files of {graph} in {raw}", "fetch them again"), libraries_silent():
        data = needed("torch_geometric", "graph").io.read_planetoid_data(str(raw), graph)
        return GraphSet.from_pyg(graph, data)


def read_tables(raw: Path, name: str) -> GraphSet:
    """Read OGB's tables: edges, features and labels."""
    edges, features, labels = (
        _table(raw / table, kind) for table, kind in zip(OGB_TABLES, (np.int64, np.float32, np.int64), strict=True)
    )
    return GraphSet.from_edges(name, features, edges.T, labels[:, 0] if labels.shape[1] == 1 else labels)


def _table(file: Path, kind: type) -> np.ndarray:
    import pandas as pd

    with _readable(str(file), "fetch this file again"):
        table: np.ndarray = pd.read_csv(file, compression="gzip", header=None, dtype=kind).to_numpy()
    return table


def read_saved(file: Path, name: str) -> GraphSet:
    """Read a `Data` that `torch.save` wrote, alone or as torch_geometric keeps sets of one graph; no code is run."""
    with _readable(str(file), "save a plain Data(x, edge_index, y) there with torch.save"), libraries_silent():
        try:
            with _parts_of_data_known():
                found = torch.load(file, map_location="cpu", weights_only=True)
        except (FrampError, PermissionError):
            raise
        except Exception:  # torch fails in many ways on what it did not write
            raise ValueError("it is no saved Data, is damaged, or holds more than its tensors") from None
        return GraphSet.from_pyg(name, _only(found))


def _parts_of_data_known() -> Any:
    """Let torch load a `Data` where it loads no code: torch_geometric declares the class safe, but not its parts."""
    data = needed("torch_geometric", "graph").data
    parts = [data.data.DataEdgeAttr, data.data.DataTensorAttr, data.storage.GlobalStorage]
    return torch.serialization.safe_globals(parts)


def _only(found: Any) -> Any:
    """Return the one graph of a saved set: [Data], (Data, slices), or (fields, slices, class)."""
    if isinstance(found, tuple) and len(found) > 1:
        slices = found[1] or {}
        if any(len(places) > 2 for places in slices.values()):
            raise ValueError("it holds several graphs")
        found = found[0]
    if isinstance(found, list):
        if len(found) != 1:
            raise ValueError(f"it holds a list of {len(found)}")
        found = found[0]
    return SimpleNamespace(**found) if isinstance(found, dict) else found


def fetch_planetoid(root: Path, graph: str) -> Path:
    """Return the folder of one of Planetoid's graphs below `root`; torch_geometric downloads it if it is not there."""

    def fetch(temporary: Path) -> Path:
        needed("torch_geometric.datasets", "graph").Planetoid(root=str(temporary), name=graph)
        return temporary / graph

    return _fetched(root / graph, graph, fetch)


def fetch_arxiv(root: Path) -> Path:
    """Return the folder of OGB's arxiv below `root`; OGB downloads it if it is not there."""

    def fetch(temporary: Path) -> Path:
        loader = _without_update_check().PygNodePropPredDataset
        with _parts_of_data_known():
            loader(name="ogbn-arxiv", root=str(temporary))
        return temporary / "ogbn_arxiv"

    return _fetched(root / "ogbn_arxiv", "ogbn-arxiv", fetch)


def _fetched(place: Path, what: str, fetch: Callable[[Path], Path]) -> Path:
    """Download into a new folder and move it into place: what is there is complete, and OGB has nothing to ask."""
    if place.is_dir():
        return place
    temporary = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
        with libraries_silent():
            found = fetch(temporary)
        try:
            os.rename(found, place)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    except FrampError:
        raise
    except (Exception, SystemExit) as error:  # OGB leaves by exit(); a download fails in many ways, all one to the user
        raise DataError(
            f"cannot download {what} to {place} ({_one_line(error)}); check the network and that folder, "
            "or name a local folder of its raw files in data.path"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return place


def _without_update_check() -> Any:
    """Import OGB without the thread that asks the package index whether OGB is outdated."""
    needed("torch_geometric", "graph")  # without it OGB lacks its loader and does not say why
    missing = object()
    before: Any = sys.modules.get("outdated", missing)
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        return needed("ogb.nodeproppred", "graph")
    finally:
        del sys.modules["outdated"]
        if before is not missing:
            sys.modules["outdated"] = before


@contextlib.contextmanager
def libraries_silent() -> Iterator[None]:
    """Keep what libraries print and warn of off the screen; a question of theirs is an error, not a wait."""
    answers, sys.stdin = sys.stdin, io.StringIO()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.stdin = answers


@contextlib.contextmanager
def _readable(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever a reader raises into one line that names the file."""
    try:
        yield
    except FrampError:
        raise
    except Exception as error:
        raise DataError(f"cannot read {what}: {_one_line(error)}; {remedy}") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
