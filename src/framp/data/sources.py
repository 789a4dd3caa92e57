"""Where images come from: bundled digits, a local folder of parquet files, or the Hugging Face hub.

Whatever the source, the images are decoded once and kept as memory-mapped files in the cache.
"""

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from framp.config import Config
from framp.data.cache import cache_folder, entry, file_hash
from framp.data.dataset import Dataset
from framp.data.decode import Table, fit, read
from framp.errors import ConfigError, DataError
from framp.rng import NOBODY, stream
from framp.settings import DataConfig


def load(config: DataConfig, cache: Path | None = None) -> Dataset:
    """Return the dataset that the settings name, from the cache if it was decoded before.

    The cache is $FRAMP_CACHE or ~/.cache/framp unless given.
    """
    return _find(config, Path(cache).expanduser() if cache else cache_folder()).verify()


def located(config: Config) -> Config:
    """Return a configuration that names a local path in full, so that it holds in every working directory."""
    local = Path(config.data.path).expanduser()
    if config.data.source not in _WITH_PATH or not config.data.path or not local.exists():
        return config
    return config.with_values({"data.path": str(local.resolve())})


_WITH_PATH = ("huggingface", "planetoid", "arxiv", "pyg")


def _find(config: DataConfig, cache: Path) -> Dataset:
    if config.source == "digits":
        return _digits(config, cache)
    if config.source != "huggingface":
        raise ConfigError(f"data.source is {config.source}, which holds no images; set it to digits or huggingface")
    if not config.path:
        raise ConfigError("data.path is empty; name a local folder of parquet files or a set on the hub")
    local = Path(config.path).expanduser()
    if local.is_dir():
        return _from_folder(local.resolve(), config, cache)
    if local.exists():
        raise DataError(f"data.path {config.path} is a file; name the folder that holds the parquet files")
    if config.path.startswith((".", "~", os.sep)):
        raise DataError(f"data.path {config.path} does not exist; name a folder of parquet files or a set on the hub")
    return _from_hub(config, cache)


def _settings(config: DataConfig) -> list[Any]:
    """Return all that decides what is read from a source."""
    return [config.image_column, config.label_column, config.train_split, config.test_split, config.image_size]


def _digits(config: DataConfig, cache: Path) -> Dataset:
    folder = entry(cache, "digits", ["digits", 1, config.image_size])
    if folder.exists():
        return Dataset.open(folder)
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    images = np.rint(values.reshape(-1, 1, 8, 8) * 255 / 16).astype(np.uint8)
    images = np.stack([fit(image, config.image_size) for image in images])
    in_test = np.zeros(len(labels), dtype=bool)
    generator = stream(0, NOBODY, NOBODY, "digits/split")
    for label in range(10):
        members = np.flatnonzero(labels == label)
        in_test[generator.permutation(members)[: round(len(members) / 5)]] = True
    train, test = ~in_test, in_test
    dataset = Dataset.from_arrays("digits", images[train], labels[train], images[test], labels[test], classes=10)
    return dataset.save(folder)


def _from_folder(local: Path, config: DataConfig, cache: Path) -> Dataset:
    files = [_parquet_files(local, split) for split in (config.train_split, config.test_split)]
    hashes = [[file_hash(file) for file in split] for split in files]
    folder = entry(cache, local.name, [hashes, _settings(config)])
    if folder.exists():
        return Dataset.open(folder)
    train = Table.from_parquet(files[0], f"{local}/{config.train_split}")
    test = Table.from_parquet(files[1], f"{local}/{config.test_split}")
    return read(local.name, train, test, config).save(folder)


def _parquet_files(folder: Path, split: str) -> list[Path]:
    """Return the files of a split, at any depth but in one folder.

    They are train-00000-of-00001.parquet, train.parquet or, as the hub exports them, train/0000.parquet.
    """
    everything = sorted(folder.rglob("*.parquet"))
    files = [file for file in everything if _split_of(file) == split]
    if not files:
        found = ", ".join(sorted({_split_of(file) for file in everything})) or "none"
        raise DataError(
            f"no split '{split}' in {folder}: no file {split}-*.parquet or {split}/0000.parquet; "
            f"splits found: {found}; set data.path, data.train_split or data.test_split"
        )
    folders = sorted({str(file.parent) for file in files})
    if len(folders) > 1:
        raise DataError(f"split '{split}' lies in several folders: {', '.join(folders)}; set data.path to one of them")
    return files


def _split_of(file: Path) -> str:
    name = re.split(r"[-.]", file.name)[0]
    return file.parent.name if name.isdecimal() else name


def _from_hub(config: DataConfig, cache: Path) -> Dataset:
    import datasets

    try:
        with _libraries_silent():
            found = datasets.load_dataset(config.path, cache_dir=str(cache / "huggingface"))
    # The hub fails with errors of many libraries; to the user they are all one.
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"cannot load '{config.path}' from the hub ({reason}); check the name and the network, "
            "or give a local folder of parquet files in data.path"
        ) from None
    splits = (config.train_split, config.test_split)
    for split in splits:
        if split not in found:
            raise DataError(
                f"no split '{split}' in '{config.path}'; splits found: {', '.join(map(str, found))}; "
                "set data.train_split or data.test_split"
            )
    folder = entry(cache, config.path, [[found[split]._fingerprint for split in splits], _settings(config)])
    if folder.exists():
        return Dataset.open(folder)
    train, test = (Table.from_dataset(found[split], f"{config.path}/{split}") for split in splits)
    return read(Path(config.path).name, train, test, config).save(folder)


@contextlib.contextmanager
def _libraries_silent() -> Iterator[None]:
    """Keep the hub's progress bars and its lines about every retry off the screen: the error says it once."""
    import datasets

    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "datasets")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if shown:
            datasets.enable_progress_bars()
