"""One client's samples as tensors, ready for batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from framp.data.dataset import Dataset, Split
from framp.data.kinds import Images
from framp.data.samples import Batch


@dataclass(frozen=True, eq=False)
class Shard:
    """Images uint8 [n, C, H, W], labels int64 [n], and the float32 [C, 1, 1] moments that normalise the images."""

    images: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def kind(self) -> Images:
        """Images of some shape."""
        return Images(*self.images.shape[1:])

    def in_order(self, batch: int, dtype: torch.dtype = torch.float32) -> Iterator[Batch]:
        """Yield each sample once, in the same order each time."""
        for start in range(0, len(self), batch):
            yield self.batch(slice(start, start + batch), dtype)

    def shuffled(self, batch: int, order: np.random.Generator, dtype: torch.dtype = torch.float32) -> Iterator[Batch]:
        """Yield each sample once, in batches drawn at random; the last may be short."""
        for rows in torch.split(torch.from_numpy(order.permutation(len(self))), batch):
            yield self.batch(rows, dtype)

    def batch(self, rows: Tensor | slice, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Return some rows: normalised images (channels last, which convolutions on a CPU prefer), labels."""
        images = self.images[rows].to(dtype, memory_format=torch.channels_last).div_(255)
        return images.sub_(self.mean.to(dtype)).div_(self.std.to(dtype)), self.labels[rows]

    @classmethod
    def of(cls, dataset: Dataset, part: Literal["train", "test"], indices: np.ndarray | None = None) -> "Shard":
        """Copy the samples named by `indices`, or all, out of a split; of mapped files only those rows are read."""
        split: Split = getattr(dataset, part)
        if indices is None:
            images, labels = np.array(split.images), np.array(split.labels)
        else:
            # Indexing with an array copies, but keeps the type np.memmap.
            images, labels = np.asarray(split.images[indices]), np.asarray(split.labels[indices])
        moments = (torch.tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in (dataset.mean, dataset.std))
        return cls(torch.from_numpy(images), torch.from_numpy(labels), *moments)


def augment(images: Tensor, generator: np.random.Generator) -> Tensor:
    """Crop each image of a normalised batch at random, from a zero padding of 1/8, and flip half of them."""
    count, _, height, width = images.shape
    rows, columns = height // 8, width // 8
    down = torch.from_numpy(generator.integers(0, 2 * rows + 1, size=count))
    right = torch.from_numpy(generator.integers(0, 2 * columns + 1, size=count))
    flipped = torch.from_numpy(generator.random(count) < 0.5)
    padded = functional.pad(images, (columns, columns, rows, rows))
    crops = padded.unfold(2, height, 1).unfold(3, width, 1)[torch.arange(count), :, down, right]
    return torch.where(flipped.view(-1, 1, 1, 1), crops.flip(3), crops)
