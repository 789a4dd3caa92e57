"""The values of a submodel or an update: without loss, as half-precision floats, or as bytes with a scale a tensor."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from framp.errors import WireError
from framp.wire.body import VALUES, Reader, Writer
from framp.wire.planes import read_words, write_words
from framp.wire.tensors import FLOATS, array_of, words_of

CODINGS = ("fp32", "fp16", "bf16", "int8")
"""A coding's place is its number in a message. "fp32" sends what there is, also of double precision."""
LOSSLESS = CODINGS[0]
_WORDS = tuple(np.dtype(name) for name in ("<u4", "<u2", "<u2", "<u1"))
_MOST = 127
_MOST_SECTIONS = 1 << 16


def write_values(writer: Writer, values: Tensor, coding: str, sections: Sequence[int]) -> None:
    """Add a vector of floats; for int8 each section has a scale of its own."""
    if coding not in CODINGS:
        raise WireError(f"there is no coding '{coding}' of values; choose one of {', '.join(CODINGS)}")
    if values.ndim != 1 or values.dtype not in FLOATS:
        raise WireError(f"values are a tensor {list(values.shape)} of {values.dtype}; pass a vector of floats")
    array = array_of(values)
    writer.raw(bytes((VALUES, CODINGS.index(coding), FLOATS.index(values.dtype))))
    writer.size(len(array))
    scales = _scales(array, sections) if coding == "int8" else np.empty(0, array.dtype)
    if coding == "int8":
        writer.size(len(sections))
        for length in sections:
            writer.size(length)
        writer.raw(scales.tobytes())
    write_words(writer, len(array), lambda start, stop: _encoded(array, start, stop, coding, sections, scales))


def read_values(reader: Reader) -> Tensor:
    """Take a vector of floats."""
    reader.tag(VALUES)
    coding, kind = reader.byte(), reader.byte()
    if coding >= len(CODINGS) or kind >= len(FLOATS):
        raise WireError(f"values of an unknown coding {coding} or type {kind} in the message; send it again")
    count, dtype = reader.size(), np.dtype(("<f4", "<f8")[kind])
    reader.claim(count * dtype.itemsize)
    sections, scales = _read_scales(reader, count, dtype) if CODINGS[coding] == "int8" else ([], np.empty(0))
    found = np.empty(count, dtype)
    word = _WORDS[coding] if coding else np.dtype(f"<u{dtype.itemsize}")
    for start, stop, words in read_words(reader, count, word):
        found[start:stop] = _decoded(words, CODINGS[coding], dtype)
    place = 0
    for length, scale in zip(sections, scales, strict=True):
        found[place : place + length] *= scale
        place += length
    return torch.from_numpy(found)


def _encoded(
    array: np.ndarray, start: int, stop: int, coding: str, sections: Sequence[int], scales: np.ndarray
) -> np.ndarray:
    part = array[start:stop]
    if coding == "fp16":
        largest = np.finfo(np.float16).max
        return words_of(np.clip(part, -largest, largest).astype(np.float16))
    if coding == "bf16":
        return words_of(torch.from_numpy(part).bfloat16().view(torch.int16).numpy())
    if coding == "int8":
        return words_of(_quantised(part, start, sections, scales))
    return words_of(part)


def _decoded(words: np.ndarray, coding: str, dtype: np.dtype) -> np.ndarray:
    if coding == "fp16":
        return words.view(np.float16)
    if coding == "bf16":
        return (words.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return words.view(np.int8) if coding == "int8" else words.view(dtype)


def _scales(array: np.ndarray, sections: Sequence[int]) -> np.ndarray:
    """Return each section's largest magnitude over 127; not a number where the section is not finite."""
    if sum(sections) != len(array):
        raise WireError(f"the sections hold {sum(sections)} values instead of {len(array)}; pass the task's own layout")
    scales, place = np.zeros(len(sections), array.dtype), 0
    for number, length in enumerate(sections):
        if length:
            part = array[place : place + length]
            largest = max(abs(float(part.min())), abs(float(part.max())))
            scales[number] = largest / _MOST if largest < np.inf else np.nan
        place += length
    return scales


def _quantised(part: np.ndarray, start: int, sections: Sequence[int], scales: np.ndarray) -> np.ndarray:
    codes = np.zeros(len(part), np.int8)
    place = 0
    for length, scale in zip(sections, scales, strict=True):
        first, last = max(place - start, 0), min(place + length - start, len(part))
        if first < last and scale > 0:
            codes[first:last] = np.clip(np.rint(part[first:last] / scale), -_MOST, _MOST)
        place += length
    return codes


def _read_scales(reader: Reader, count: int, dtype: np.dtype) -> tuple[list[int], np.ndarray]:
    number = reader.size()
    if number > _MOST_SECTIONS:
        raise WireError(f"values of {number} sections; there are at most {_MOST_SECTIONS}")
    sections = [reader.size() for _ in range(number)]
    if sum(sections) != count:
        raise WireError(f"sections of {sum(sections)} values do not make {count}; send it again")
    return sections, np.frombuffer(reader.raw(number * dtype.itemsize), dtype)
