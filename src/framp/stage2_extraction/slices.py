"""Smaller networks inside a full one: some channels of each group, all parameters between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

import numpy as np
import torch

from framp.layout import ParameterLayout
from framp.stage2_extraction.extractor import Selection
from framp.stage2_extraction.network import Network
from framp.structure import Structure, flat


@dataclass(frozen=True)
class Slices:
    """The networks that a structure can be narrowed to."""

    structure: Structure
    layout: ParameterLayout
    _found: dict[int, Fraction | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def widths(self, ratio: Fraction) -> list[int]:
        """Return how many channels of each group a width ratio keeps: ⌈r·n⌉."""
        return [ceil(ratio * width) for width in self.structure.widths]

    def count(self, ratio: Fraction) -> int:
        """Return the number of maskable parameters of a width ratio."""
        return self.structure.count(self.layout, self.widths(ratio))

    def largest(self, limit: int) -> Fraction | None:
        """Return the largest width ratio of at most so many parameters; None if one channel a layer has more."""
        if limit not in self._found:
            self._found[limit] = self._search(limit)
        return self._found[limit]

    def tried(self, network: Network) -> "Slices":
        """Return these slices, or raise if the narrowest network cannot be trained."""
        shapes = self.cut([np.arange(1) for _ in self.structure.widths]).shapes
        if shapes is not None:
            network.require(shapes)
        return self

    def _search(self, limit: int) -> Fraction | None:
        steps = sorted({Fraction(kept, width) for width in (*self.structure.widths, 1) for kept in range(1, width + 1)})
        low, high = 0, len(steps)
        while low < high:
            middle = (low + high) // 2
            if self.count(steps[middle]) <= limit:
                low = middle + 1
            else:
                high = middle
        return steps[low - 1] if low else None

    def cut(self, kept: Sequence[np.ndarray]) -> Selection:
        """Return the entries between the kept channels of each group (ascending), and between those and the classes."""
        below, above, rows, classes = [], [], [], []
        shapes: list[tuple[int, ...] | None] = []
        size = 0
        for number, entry in enumerate(self.layout.entries):
            if not self.structure.used[number]:
                shapes.append(None)
                continue
            positions = self.structure.positions(number, kept)
            shapes.append(tuple(len(along) for along in positions))
            places = flat(entry, positions)
            if entry.stop > self.layout.maskable:
                above.append(places - self.layout.maskable)
                continue
            below.append(places.astype(np.int32))
            dimension = self.structure.classes[number]
            if dimension is not None:
                inner = int(np.prod(shapes[-1][dimension + 1 :], dtype=np.int64))  # type: ignore[index]
                rows.append(size + np.arange(len(places)))
                classes.append(np.arange(len(places)) // inner % entry.shape[dimension])
            size += len(places)
        class_rows = torch.from_numpy(np.stack([np.concatenate(rows), np.concatenate(classes)]))
        if size == self.layout.maskable and all(self.structure.used):
            return Selection(class_rows=class_rows)
        return Selection(
            torch.from_numpy(np.concatenate(below)),
            torch.from_numpy(np.concatenate([*above, np.empty(0, np.int64)])),
            tuple(shapes),
            class_rows,
        )
