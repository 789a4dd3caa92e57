"""Tensors without loss: floats by planes of bytes, truth values as bits, integers as wide as the largest needs."""

from math import prod

import numpy as np
import torch
from torch import Tensor

from framp.errors import WireError
from framp.wire.body import NONE, TENSOR, Reader, Writer
from framp.wire.planes import read_words, write_words

DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
"""A type's place is its number in a message."""
FLOATS = DTYPES[:2]
_ARRAYS = tuple(np.dtype(name) for name in ("<f4", "<f8", "<i4", "<i8", "?"))
_WIDTHS = tuple(np.dtype(name) for name in ("<i1", "<i2", "<i4", "<i8"))
_MOST_DIMENSIONS = 8


def array_of(tensor: Tensor) -> np.ndarray:
    """Return a tensor's content as one vector of a known type."""
    if tensor.dtype not in DTYPES or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise WireError(f"a tensor of {tensor.dtype} on {tensor.device} does not fit into a message; convert it")
    found: np.ndarray = tensor.detach().contiguous().numpy().reshape(-1)
    return found


def words_of(array: np.ndarray) -> np.ndarray:
    """Return the bits of floats or integers as unsigned words, without a copy."""
    return array.view(np.dtype(f"<u{array.dtype.itemsize}"))


def write_shape(writer: Writer, shape: tuple[int, ...]) -> None:
    """Add the number of dimensions and their lengths."""
    if len(shape) > _MOST_DIMENSIONS:
        raise WireError(f"a tensor of {len(shape)} dimensions does not fit into a message; it has at most 8")
    writer.tag(len(shape))
    for length in shape:
        writer.size(length)


def read_shape(reader: Reader) -> tuple[int, ...]:
    """Take what `write_shape` adds."""
    dimensions = reader.byte()
    if dimensions > _MOST_DIMENSIONS:
        raise WireError(f"a tensor of {dimensions} dimensions in the message; it has at most {_MOST_DIMENSIONS}")
    return tuple(reader.size() for _ in range(dimensions))


def write_tensor(writer: Writer, tensor: Tensor | None) -> None:
    """Add a tensor, or that there is none."""
    if tensor is None:
        writer.tag(NONE)
        return
    array = array_of(tensor)
    writer.raw(bytes((TENSOR, DTYPES.index(tensor.dtype))))
    write_shape(writer, tuple(tensor.shape))
    if tensor.dtype == torch.bool:
        writer.raw(np.packbits(array).tobytes())
    elif tensor.dtype in FLOATS:
        words = words_of(array)
        write_words(writer, len(words), lambda start, stop: words[start:stop])
    else:
        low, high = (int(array.min()), int(array.max())) if len(array) else (0, 0)
        width = next(n for n, kind in enumerate(_WIDTHS) if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
        writer.tag(width)
        writer.raw(array.astype(_WIDTHS[width]).tobytes())


def read_tensor(reader: Reader, dtypes: tuple[torch.dtype, ...], dimensions: int) -> Tensor:
    """Take a tensor of one of some types and so many dimensions."""
    reader.tag(TENSOR)
    return read_content(reader, dtypes, dimensions)


def read_content(reader: Reader, dtypes: tuple[torch.dtype, ...], dimensions: int) -> Tensor:
    """Take a tensor whose tag has been taken."""
    number, shape = reader.byte(), read_shape(reader)
    if number >= len(DTYPES) or DTYPES[number] not in dtypes or len(shape) != dimensions:
        raise WireError(f"a tensor of type {number} and {len(shape)} dimensions stands where the message needs another")
    kind, count = _ARRAYS[number], prod(shape)
    reader.claim(count * kind.itemsize)
    if DTYPES[number] == torch.bool:
        bits = np.frombuffer(reader.raw(-(-count // 8)), np.uint8)
        found = np.unpackbits(bits, count=count).view(bool)
    elif DTYPES[number] in FLOATS:
        found = np.empty(count, kind)
        words = words_of(found)
        for start, stop, chunk in read_words(reader, count, words.dtype):
            words[start:stop] = chunk
    else:
        width = reader.byte()
        if width >= len(_WIDTHS) or _WIDTHS[width].itemsize > kind.itemsize:
            raise WireError(f"integers of an unknown width {width} in the message; send it again")
        found = np.frombuffer(reader.raw(count * _WIDTHS[width].itemsize), _WIDTHS[width]).astype(kind)
    return torch.from_numpy(found.reshape(shape))
