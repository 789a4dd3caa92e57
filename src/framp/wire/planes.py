"""Machine words without loss: by planes of bytes, each of them compressed where that pays.

A word is rotated left by one bit first: a float's sign goes to the bottom, and its exponent fills the top byte. Of the
weights above a threshold few exponents differ, so that byte takes about one bit; most of the mantissa is noise.
"""

from collections.abc import Callable, Iterator

import numpy as np

from framp.errors import WireError
from framp.wire.body import Reader, Writer

CHUNK = 1 << 17
"""Words that are worked on at a time: they stay in the cache, and decoding needs little beside its result."""
_AS_THEY_ARE, _BY_PLANES = 0, 1
_RAW, _PACKED, _CONSTANT = 0, 1, 2


def write_words(writer: Writer, count: int, words: Callable[[int, int], np.ndarray]) -> None:
    """Add unsigned words; `words` returns a range of them."""
    for start in range(0, count, CHUNK):
        chunk = np.ascontiguousarray(words(start, min(start + CHUNK, count)))
        planes = list(_planes(writer, chunk))
        if sum(len(content) + 3 for _, content in planes) >= chunk.nbytes:
            writer.tag(_AS_THEY_ARE)
            writer.raw(chunk.tobytes())
            continue
        writer.tag(_BY_PLANES)
        for mode, content in planes:
            writer.tag(mode)
            writer.block(content) if mode == _PACKED else writer.raw(content)


def read_words(reader: Reader, count: int, dtype: np.dtype) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield ranges of words in their order; each is overwritten by the next."""
    room = np.empty(min(count, CHUNK), dtype)
    for start in range(0, count, CHUNK):
        stop = min(start + CHUNK, count)
        chunk = room[: stop - start]
        mode = reader.byte()
        if mode == _AS_THEY_ARE:
            chunk[:] = np.frombuffer(reader.raw(chunk.nbytes), dtype)
        elif mode == _BY_PLANES:
            rows = chunk.view(np.uint8).reshape(-1, dtype.itemsize)
            for plane in range(dtype.itemsize):
                rows[:, plane] = _plane(reader, len(chunk))
            _rotate(chunk, 8 * dtype.itemsize - 1)
        else:
            raise WireError(f"words of an unknown coding {mode} in the message; send it again")
        yield start, stop, chunk


def _planes(writer: Writer, chunk: np.ndarray) -> Iterator[tuple[int, bytes]]:
    rotated = chunk.copy()
    _rotate(rotated, 1)
    rows = rotated.view(np.uint8).reshape(-1, chunk.dtype.itemsize)
    for plane in range(chunk.dtype.itemsize):
        content = rows[:, plane].tobytes()
        if content.count(content[:1]) == len(content):
            yield _CONSTANT, content[:1]
            continue
        packed = writer.compression.pack(content)
        yield (_PACKED, packed) if len(packed) + 3 < len(content) else (_RAW, content)


def _plane(reader: Reader, count: int) -> np.ndarray | int:
    mode = reader.byte()
    if mode == _RAW:
        return np.frombuffer(reader.raw(count), np.uint8)
    if mode == _PACKED:
        return np.frombuffer(reader.compression.unpack(reader.block(), count), np.uint8)
    if mode == _CONSTANT:
        return reader.byte()
    raise WireError(f"a plane of an unknown coding {mode} in the message; send it again")


def _rotate(words: np.ndarray, by: int) -> None:
    """Rotate each word left by some bits, in place."""
    low = words >> words.dtype.type(8 * words.dtype.itemsize - by)
    words <<= words.dtype.type(by)
    words |= low
