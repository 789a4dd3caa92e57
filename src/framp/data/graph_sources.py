"""Where graphs come from: the block model, Planetoid's citation graphs, OGB's arxiv, or a saved torch_geometric Data.

What is read from files is decoded once and kept as memory-mapped files in the cache.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from framp.data import graph_files
from framp.data.block_model import generate
from framp.data.cache import cache_folder, entry, file_hash
from framp.data.graph_set import GraphSet
from framp.errors import ConfigError, DataError
from framp.settings import DataConfig, SbmConfig


def load_graph(config: DataConfig, sbm: SbmConfig, cache: Path | None = None) -> GraphSet:
    """Return the graph that the settings name, from the cache if its files were decoded before.

    The cache is $FRAMP_CACHE or ~/.cache/framp unless given. Planetoid's files are pickles: read only those you trust.
    """
    if config.source not in _SOURCES:
        raise ConfigError(
            f"data.source is {config.source}, which holds no graph; set it to one of: {', '.join(GRAPH_SOURCES)}"
        )
    return _SOURCES[config.source](config, sbm, Path(cache).expanduser() if cache else cache_folder())


def _sbm(config: DataConfig, sbm: SbmConfig, cache: Path) -> GraphSet:
    return generate(sbm)


def _planetoid(config: DataConfig, sbm: SbmConfig, cache: Path) -> GraphSet:
    graph = config.graph
    names = graph_files.planetoid_names(graph)
    if config.path:
        raw = _holding(_local_folder(config), ("", "raw", f"{graph}/raw"), names)
    else:
        raw = _complete(graph_files.fetch_planetoid(cache / "planetoid", graph) / "raw", names)
    return _kept(cache, graph, [raw / name for name in names], partial(graph_files.read_planetoid, raw, graph))


def _arxiv(config: DataConfig, sbm: SbmConfig, cache: Path) -> GraphSet:
    names, below = graph_files.OGB_TABLES, ("", "raw", "ogbn_arxiv/raw", "arxiv/raw")
    if config.path:
        local = _local_folder(config)
        processed = [local / part / graph_files.OGB_PROCESSED for part in ("", "ogbn_arxiv")]
        found = [file for file in processed if file.is_file()]
        if found and not any((local / part / names[0]).is_file() for part in below):
            return _kept(cache, "arxiv", found[:1], partial(graph_files.read_saved, found[0], "arxiv"))
        raw = _holding(local, below, names)
    else:
        raw = _complete(graph_files.fetch_arxiv(cache / "ogb") / "raw", names)
    return _kept(cache, "arxiv", [raw / name for name in names], partial(graph_files.read_tables, raw, "arxiv"))


def _pyg(config: DataConfig, sbm: SbmConfig, cache: Path) -> GraphSet:
    if not config.path:
        raise ConfigError("data.path is empty; name a file with a torch_geometric Data that torch.save wrote")
    file = Path(config.path).expanduser()
    if not file.is_file():
        wrong = "is a folder" if file.is_dir() else "does not exist"
        raise DataError(f"data.path {config.path} {wrong}; name a file with a Data that torch.save wrote")
    return _kept(cache, file.stem, [file], partial(graph_files.read_saved, file, file.stem))


_SOURCES: dict[str, Callable[[DataConfig, SbmConfig, Path], GraphSet]] = {
    "sbm": _sbm,
    "planetoid": _planetoid,
    "arxiv": _arxiv,
    "pyg": _pyg,
}

#: The values of data.source that lead to a graph.
GRAPH_SOURCES = tuple(_SOURCES)


def _kept(cache: Path, name: str, files: list[Path], read: Callable[[], GraphSet]) -> GraphSet:
    """Return what was read from files of this content before, else read and keep it."""
    key: list[Any] = ["graph", 1, name, [file_hash(file) for file in files]]
    folder = entry(cache, name, key)
    return (GraphSet.open(folder) if folder.exists() else read().save(folder)).verify()


def _local_folder(config: DataConfig) -> Path:
    local = Path(config.path).expanduser()
    if not local.is_dir():
        wrong = "is a file" if local.exists() else "does not exist"
        raise DataError(f"data.path {config.path} {wrong}; name the folder that holds the raw files")
    return local.resolve()


def _holding(folder: Path, below: Sequence[str], names: Sequence[str]) -> Path:
    """Return the first of some folders that holds one of the files, if it holds all of them."""
    for place in (folder / part for part in below):
        missing = [name for name in names if not (place / name).is_file()]
        if not missing:
            return place
        if len(missing) < len(names):
            raise DataError(f"there is no {missing[0]} in {place}, beside its other files; put it there")
    elsewhere = ", ".join(f"{part}/" for part in below if part)
    raise DataError(
        f"there is no {names[0]} in {folder} nor in its {elsewhere}; name the folder of the raw files in data.path, "
        "or leave it empty for a download"
    )


def _complete(raw: Path, names: Sequence[str]) -> Path:
    for name in names:
        if not (raw / name).is_file():
            raise DataError(f"there is no {name} in the download {raw}; delete {raw.parent} and try again")
    return raw
