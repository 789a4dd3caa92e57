"""A labelled set of images in two splits, in memory or as memory-mapped files that processes share."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framp.data.arrays import damaged, open_folder, save_folder, write_folder
from framp.errors import DataError

KIND = "dataset"
SCHEMA = 1
CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Split:
    """Images uint8 [N, C, H, W] and their class numbers int64 [N]."""

    images: np.ndarray
    labels: np.ndarray

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.dtype != np.uint8 or images.ndim != 4:
            raise DataError(
                f"images are {images.dtype} of shape {list(images.shape)}; give uint8 values 0 to 255 as [N, C, H, W]"
            )
        if labels.dtype != np.int64 or labels.ndim != 1:
            raise DataError(f"labels are {labels.dtype} of shape {list(labels.shape)}; give class numbers int64 as [N]")
        if len(images) != len(labels):
            raise DataError(f"{len(images)} images but {len(labels)} labels; give one label to each image")
        if images.size == 0:
            raise DataError("a split is empty; give at least one image to train on and one to test on")

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Two splits, and the mean and deviation of each channel of the training images scaled to [0, 1]."""

    name: str
    classes: int
    train: Split
    test: Split
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sha256: str
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.train.images.shape[1:] != self.test.images.shape[1:]:
            raise DataError(
                f"{self.name}: train images are {list(self.train.images.shape[1:])} but test images are "
                f"{list(self.test.images.shape[1:])}; give both the same channels, height and width"
            )
        for part, split in (("train", self.train), ("test", self.test)):
            wrong = np.flatnonzero((split.labels < 0) | (split.labels >= self.classes))
            if len(wrong):
                raise DataError(
                    f"label out of range: {split.labels[wrong[0]]} at sample {wrong[0]} of {self.name}/{part}, "
                    f"with {self.classes} classes; number the classes 0 to {self.classes - 1}"
                )

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train_images: np.ndarray,
        train_labels: np.ndarray,
        test_images: np.ndarray,
        test_labels: np.ndarray,
        classes: int | None = None,
    ) -> "Dataset":
        """Build a dataset in memory; images uint8 [N, C, H, W], or [N, H, W] if grey.

        Without `classes` their number is the largest label plus one, unless most of the numbers below it are missing.
        """
        train, test = _split(train_images, train_labels), _split(test_images, test_labels)
        if classes is None:
            classes = _classes(name, train, test)
        mean, std = _moments(train.images)
        return cls(name, classes, train, test, mean, std, _content_hash(train, test))

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """Map a folder that `save` wrote into memory; nothing is read until it is used."""
        folder = Path(folder).absolute()

        def build(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Dataset":
            return cls(
                name=str(meta["name"]),
                classes=int(meta["classes"]),
                train=Split(arrays["train_images"], arrays["train_labels"]),
                test=Split(arrays["test_images"], arrays["test_labels"]),
                mean=tuple(map(float, meta["mean"])),
                std=tuple(map(float, meta["std"])),
                sha256=str(meta["sha256"]),
                folder=folder,
            )

        return open_folder(folder, KIND, SCHEMA, _FILES, build)

    def verify(self) -> "Dataset":
        """Raise if the samples are not those that were hashed."""
        if _content_hash(self.train, self.test) != self.sha256:
            raise damaged(self.folder, KIND, "wrong checksum")
        return self

    def save(self, folder: Path, elsewhere: str = "FRAMP_CACHE") -> "Dataset":
        """Write the dataset as files, all or nothing, and return it memory-mapped.

        If another process wrote the same dataset meanwhile, its files are used. `elsewhere` is the environment
        variable that leads to another disk, for the message if this one refuses.
        """
        return save_folder(folder, KIND, self, self._write, Dataset.open, elsewhere)

    def _write(self, folder: Path) -> None:
        meta = {
            "name": self.name,
            "classes": self.classes,
            "mean": self.mean,
            "std": self.std,
            "sha256": self.sha256,
        }
        write_folder(folder, SCHEMA, meta, self._arrays())

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = (self.train.images, self.train.labels, self.test.images, self.test.labels)
        return dict(zip(_FILES, arrays, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a dataset with files as its path alone, so that worker processes share the pages."""
        if self.folder is not None:
            return Dataset.open, (self.folder,)
        return Dataset, (self.name, self.classes, self.train, self.test, self.mean, self.std, self.sha256, None)


_FILES = ("train_images", "train_labels", "test_images", "test_labels")


def _split(images: np.ndarray, labels: np.ndarray) -> Split:
    images, labels = np.asarray(images), np.asarray(labels)
    if images.dtype != np.uint8:
        raise DataError(f"images are {images.dtype}; give uint8 values 0 to 255, for example (x * 255).round()")
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim == 4 and images.shape[1] > 4 and images.shape[3] in (1, 3):
        raise DataError(
            f"images have shape {list(images.shape)}, channels last; give [N, C, H, W]: images.transpose(0, 3, 1, 2)"
        )
    if labels.dtype.kind not in "iu":
        raise DataError(f"labels are {labels.dtype}; give class numbers, integers from 0")
    return Split(np.ascontiguousarray(images), np.ascontiguousarray(labels, dtype=np.int64))


def _classes(name: str, train: Split, test: Split) -> int:
    part, split = max((("train", train), ("test", test)), key=lambda named: int(named[1].labels.max()))
    largest = max(int(split.labels.max()), 0)
    found = np.union1d(train.labels, test.labels)
    if largest + 1 > 2 * len(found):  # a wrong label would make a network with an output for every number below it
        raise DataError(
            f"label {largest} at sample {split.labels.argmax()} of {name}/{part}, but there are only {len(found)} "
            f"different labels; correct it, number the classes 0 to {len(found) - 1}, or say how many there are "
            "(names of the label column in parquet, `classes` in Python)"
        )
    return largest + 1


def _moments(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation per channel of images scaled to [0, 1], from exact integer sums."""
    channels = images.shape[1]
    sums, squares = [0] * channels, [0] * channels
    for start in range(0, len(images), CHUNK):
        values = images[start : start + CHUNK].astype(np.uint32)
        for channel in range(channels):
            sums[channel] += int(values[:, channel].sum(dtype=np.uint64))
            squares[channel] += int(np.square(values[:, channel]).sum(dtype=np.uint64))
    count = images.size // channels
    mean = tuple(total / (255 * count) for total in sums)
    variances = [count * square - total * total for total, square in zip(sums, squares, strict=True)]
    return mean, tuple(math.sqrt(value) / (255 * count) if value else 1.0 for value in variances)


def _content_hash(train: Split, test: Split) -> str:
    digest = hashlib.sha256()
    for split in (train, test):
        digest.update(f"{list(split.images.shape)}".encode())
        digest.update(np.ascontiguousarray(split.images).data)
        digest.update(np.ascontiguousarray(split.labels, dtype="<i8").data)
    return digest.hexdigest()
