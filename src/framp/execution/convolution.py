"""A convolution of active weights: forward, the gradient of its input, and that of the active weights alone.

The gradient of the input is itself a convolution, from outputs to inputs with the kernel turned around. With a stride
of s there is one for each of the s·s pixels of a square: of the kernel's places that this pixel sees.
"""

from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from framp.execution.native import Kernels, Lists, Shape

#: A list of entries is cut into blocks of input channels that stay in the fastest cache, but not into tiny ones.
_CHANNELS, _ENTRIES = 8, 12


@dataclass(frozen=True)
class _Phase:
    """The convolution that gives the gradient of every s-th pixel, from some first one."""

    first: tuple[int, int]
    kernel: tuple[int, int]
    padding: int
    blocks: int
    lists: Lists = (torch.empty(0), torch.empty(0))


class Convolution:
    """The active places of a weight [outputs, inputs, rows, columns], as the kernels take them."""

    def __init__(self, kernels: Kernels, shape: tuple[int, ...], stride: int, padding: int, places: Tensor) -> None:
        self._kernels, self._shape, self._stride, self._padding = kernels, shape, stride, padding
        outputs, inputs = shape[:2]
        self._blocks = _blocks(inputs, outputs, len(places))
        self._lists = kernels.lists(self._sizes(torch.empty(0, 1, 1, 0)), places)
        self._phases = [self._whole(places)] if stride == 1 else self._parts(places)

    def forward(self, x: Tensor, values: Tensor) -> Tensor:
        """Convolve x [channel, row, column, sample]."""
        return self._kernels.convolve(self._sizes(x), self._lists, values, x)

    def weights(self, x: Tensor, values: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of the active values."""
        return self._kernels.weight_gradient(self._sizes(x), self._lists, values, x, gradient)

    def down(self, shape: torch.Size, values: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of an input of some shape."""
        stride = self._stride
        whole = None if stride == 1 else gradient.new_zeros(shape)
        for phase in self._phases:
            rows, columns = (-(-(size - first) // stride) for size, first in zip(shape[1:3], phase.first, strict=True))
            found = self._kernels.convolve(self._turned(phase, gradient, rows, columns), phase.lists, values, gradient)
            if whole is None:
                return found
            whole[:, phase.first[0] :: stride, phase.first[1] :: stride] = found
        assert whole is not None
        return whole

    def _sizes(self, x: Tensor) -> Shape:
        outputs, inputs, size, _ = self._shape
        vectors = x.shape[3] // self._kernels.lanes(x.dtype)
        out = [(length + 2 * self._padding - size) // self._stride + 1 for length in x.shape[1:3]]
        return Shape(
            inputs,
            x.shape[1],
            x.shape[2],
            outputs,
            *out,
            size,
            size,
            self._stride,
            self._padding,
            vectors,
            self._blocks,
        )

    def _turned(self, phase: _Phase, gradient: Tensor, rows: int, columns: int) -> Shape:
        vectors = gradient.shape[3] // self._kernels.lanes(gradient.dtype)
        return Shape(
            *gradient.shape[:3], self._shape[1], rows, columns, *phase.kernel, 1, phase.padding, vectors, phase.blocks
        )

    def _whole(self, places: Tensor) -> _Phase:
        outputs, inputs, size, _ = self._shape
        phase = _Phase((0, 0), (size, size), size - 1 - self._padding, _blocks(outputs, inputs, len(places)))
        sizes = self._turned(phase, torch.empty(outputs, 1, 1, 0), 1, 1)
        return replace(phase, lists=self._kernels.lists(sizes, places, turned=True))

    def _parts(self, places: Tensor) -> list[_Phase]:
        """Return the convolution of each pixel of a square that any of the kernel's places sees."""
        outputs, inputs, size, _ = self._shape
        column, pairs = places % size, places // size
        row, pairs = pairs % size, pairs // size
        channel, output = pairs % inputs, pairs // inputs
        found = []
        for first in product(range(self._stride), repeat=2):
            axes = [_Axis.of(pixel, size, self._stride, self._padding) for pixel in first]
            if not all(axis.count for axis in axes):
                continue
            padding = max(axis.needed for axis in axes)
            kernel = [axis.count + padding - axis.before for axis in axes]
            own = torch.ones_like(places, dtype=torch.bool)
            target = channel * outputs + output
            for axis, place, length in zip(axes, (row, column), kernel, strict=True):
                step = (place - axis.start).div(self._stride, rounding_mode="floor")
                own &= (place - axis.start) % self._stride == 0
                target = target * length + (length - 1 - step)
            chosen = own.nonzero().squeeze(1)
            phase = _Phase((first[0], first[1]), (kernel[0], kernel[1]), padding, _blocks(outputs, inputs, len(chosen)))
            sizes = self._turned(phase, torch.empty(outputs, 1, 1, 0), 1, 1)
            lists = self._kernels.lists(sizes, target[chosen].contiguous(), chosen.int())
            found.append(replace(phase, lists=lists))
        return found


@dataclass(frozen=True)
class _Axis:
    """Along one axis, the places of a kernel that a pixel sees: from a first one every s-th."""

    start: int
    count: int
    before: int
    """How far the turned kernel reaches out before the first output."""
    needed: int
    """The border that keeps it inside, on either side."""

    @classmethod
    def of(cls, pixel: int, size: int, stride: int, padding: int) -> "_Axis":
        start = (pixel + padding) % stride
        count = len(range(start, size, stride))
        before = count - 1 - (pixel + padding - start) // stride
        behind = (size - padding - start + stride - 2) // stride
        return cls(start, count, before, max(before, behind, 0))


def _blocks(inputs: int, outputs: int, entries: int) -> int:
    return max(1, min(inputs // _CHANNELS, entries // (outputs * _ENTRIES)))
