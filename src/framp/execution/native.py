"""The compiled kernels: the fastest build that this machine's processor can run, if the installation has any."""

import ctypes
import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

LIBRARIES = Path(__file__).with_name("lib")
#: Instruction sets, the fastest first, each with what the processor has to offer.
BUILDS = {
    "avx512": {"avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"},
    "avx2": {"avx2", "fma"},
    "plain": set[str](),
}
ENTRY_BYTES = 8
#: What the libraries have to be compiled from; the same number is in kernels.cpp.
INTERFACE = 1
Lists = tuple[Tensor, Tensor]
"""Where each list starts, and the entries."""


class Shape(ctypes.Structure):
    """A convolution's sizes, as the kernels take them."""

    _fields_ = [
        (name, ctypes.c_int32)
        for name in (
            *("inputs", "height", "width", "outputs", "out_height", "out_width"),
            *("kernel_height", "kernel_width", "stride", "padding", "vectors", "blocks"),
        )
    ]


class Kernels:
    """One build of the kernels."""

    def __init__(self, name: str, library: ctypes.CDLL) -> None:
        self.name, self._library = name, library
        self._bytes = int(library.framp_vector_bytes())
        library.framp_scratch_bytes.restype = ctypes.c_int64

    def lanes(self, dtype: torch.dtype) -> int:
        """Return how many numbers a vector holds: of how many samples a batch has to be a multiple."""
        return self._bytes // dtype.itemsize

    def lists(self, shape: Shape, places: Tensor, positions: Tensor | None = None, turned: bool = False) -> Lists:
        """Sort active places of a weight (int32) into the lists that the kernels run through.

        `positions` tells where their values are, if not in this order; `turned` is for the gradient of a convolution.
        """
        starts = torch.empty(shape.blocks * shape.outputs + 1, dtype=torch.int32)
        entries = torch.empty(len(places) * ENTRY_BYTES, dtype=torch.uint8)
        self._library.framp_lists(
            ctypes.byref(shape), _at(places), None if positions is None else _at(positions),
            ctypes.c_int64(len(places)), ctypes.c_int32(turned), _at(starts), _at(entries),
        )  # fmt: skip
        return starts, entries

    def convolve(self, shape: Shape, lists: Lists, values: Tensor, x: Tensor) -> Tensor:
        """Return the convolution of x [channel, row, column, sample]."""
        out = x.new_empty(shape.outputs, shape.out_height, shape.out_width, x.shape[3])
        run = getattr(self._library, f"framp_forward_{_suffix(x)}")
        scratch = self._scratch(shape)
        run(ctypes.byref(shape), *map(_at, lists), _at(values), _at(x), _at(scratch), _at(out))
        return out

    def weight_gradient(self, shape: Shape, lists: Lists, values: Tensor, x: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of the active values."""
        found = torch.zeros_like(values)
        run = getattr(self._library, f"framp_weights_{_suffix(x)}")
        scratch = self._scratch(shape)
        run(ctypes.byref(shape), *map(_at, lists), _at(x), _at(gradient), _at(scratch), _at(found))
        return found

    def normalise(self, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the batch norm of x [channel, …], and each channel's mean and 1/deviation."""
        out, means, scales = torch.empty_like(x), torch.empty_like(bias), torch.empty_like(bias)
        run = getattr(self._library, f"framp_normalise_{_suffix(x)}")
        run(
            *_extent(x), ctypes.c_double(epsilon), _at(x), _at(weight), _at(bias), _at(out), _at(means), _at(scales)
        )  # fmt: skip
        return out, means, scales

    def normalise_back(
        self, x: Tensor, gradient: Tensor, weight: Tensor, means: Tensor, scales: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of a batch norm's x, weight and bias."""
        down, of_weight, of_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        run = getattr(self._library, f"framp_normalise_back_{_suffix(x)}")
        run(*_extent(x), *map(_at, (x, gradient, weight, means, scales, down, of_weight, of_bias)))
        return down, of_weight, of_bias

    def _scratch(self, shape: Shape) -> Tensor:
        return torch.empty(self._library.framp_scratch_bytes(ctypes.byref(shape)), dtype=torch.uint8)


def available() -> list[str]:
    """Return the builds that are there and that this machine's processor can run, the fastest first."""
    flags = _processor_flags()
    return [name for name, wanted in BUILDS.items() if wanted <= flags and _file(name).is_file()]


def load(name: str) -> Kernels | None:
    """Return a build; None if it was compiled for another system, or from another version of the kernels."""
    try:
        library = ctypes.CDLL(str(_file(name)))
        return Kernels(name, library) if library.framp_interface() == INTERFACE else None
    except (OSError, AttributeError):
        return None


@cache
def kernels() -> Kernels | None:
    """Return the fastest build that runs here; None: there is none."""
    return next(filter(None, map(load, available())), None)


def _file(name: str) -> Path:
    return LIBRARIES / f"kernels-{name}.so"


def _processor_flags() -> set[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return set()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return next((set(line.split(":")[1].split()) for line in lines if line.startswith("flags")), set())


def _at(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _extent(x: Tensor) -> tuple[ctypes.c_int32, ctypes.c_int64]:
    return ctypes.c_int32(x.shape[0]), ctypes.c_int64(x[0].numel())


def _suffix(tensor: Tensor) -> str:
    return {torch.float32: "float32", torch.float64: "float64"}[tensor.dtype]
