"""Machine words without loss, chunk by chunk: what is regular in them is compressed, and noise is left alone.

A magnitude, read as an integer, orders as the float does. The weights above a threshold lie in a few octaves: less
the smallest magnitude of the chunk they need a few bits fewer, and the highest eight of those say exponent and first
bits of the mantissa in one byte, whose values are very unequally likely. The sign goes to the bottom. The words then
travel by planes: of their first bytes, of their second ones, and so on, and of the bits that are left over.
"""

from collections.abc import Callable, Iterator

import numpy as np

from framp.errors import WireError
from framp.wire.body import Reader, Writer

CHUNK = 1 << 15
"""Words that are worked on at a time: they stay in the cache, and decoding needs little beside its result."""
_AS_THEY_ARE, _BY_PLANES = 0, 1
_RAW, _PACKED, _CONSTANT = 0, 1, 2
_SAMPLE = 2048
"""Bytes of a longer plane that tell whether it can be compressed."""
_WORTH = 0.97


def write_words(writer: Writer, count: int, words: Callable[[int, int], np.ndarray]) -> None:
    """Add unsigned words; `words` returns a range of them."""
    for start in range(0, count, CHUNK):
        chunk = np.ascontiguousarray(words(start, min(start + CHUNK, count)))
        planes = Writer(writer.compression)
        _write_planes(planes, chunk)
        if sum(map(len, planes.parts)) < chunk.nbytes:
            writer.tag(_BY_PLANES)
            writer.parts += planes.parts
        else:
            writer.tag(_AS_THEY_ARE)
            writer.raw(chunk.tobytes())


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
            _read_planes(reader, chunk)
        else:
            raise WireError(f"words of an unknown coding {mode} in the message; send it again")
        yield start, stop, chunk


def _write_planes(writer: Writer, chunk: np.ndarray) -> None:
    kind = chunk.dtype.type
    bits = width = 8 * chunk.dtype.itemsize
    aligned = chunk
    if bits > 8:
        above = chunk & kind((1 << bits - 1) - 1)
        least = above.min()
        above -= least
        width = int(above.max()).bit_length() + 1
        writer.raw(least.tobytes() + bytes((width,)))
        aligned = chunk >> kind(bits - 1)
        above <<= kind(1)
        aligned |= above
        aligned <<= kind(bits - width)
    rows = aligned.view(np.uint8).reshape(len(chunk), -1)[:, ::-1]
    whole, rest = divmod(width, 8)
    for plane in range(whole):
        _write_plane(writer, rows[:, plane].tobytes())
    if rest:
        spread = np.unpackbits(rows[:, whole]).reshape(-1, 8)[:, :rest]
        _write_plane(writer, np.packbits(spread).tobytes())


def _read_planes(reader: Reader, chunk: np.ndarray) -> None:
    kind = chunk.dtype.type
    bits = width = 8 * chunk.dtype.itemsize
    least = kind(0)
    if bits > 8:
        (least,) = np.frombuffer(reader.raw(chunk.dtype.itemsize), chunk.dtype)
        width = reader.byte()
        if not 0 < width <= bits:
            raise WireError(f"words of {width} bits in the message instead of {bits} at most; send it again")
    chunk.fill(0)
    rows = chunk.view(np.uint8).reshape(len(chunk), -1)[:, ::-1]
    whole, rest = divmod(width, 8)
    for plane in range(whole):
        rows[:, plane] = _read_plane(reader, len(chunk))
    if rest:
        packed = _read_plane(reader, -(-len(chunk) * rest // 8))
        spread = np.zeros((len(chunk), 8), np.uint8)
        spread[:, :rest] = np.unpackbits(packed, count=len(chunk) * rest).reshape(-1, rest)
        rows[:, whole] = np.packbits(spread)
    if bits > 8:
        chunk >>= kind(bits - width)
        signs = chunk << kind(bits - 1)
        chunk >>= kind(1)
        chunk += least
        chunk |= signs


def _write_plane(writer: Writer, content: bytes) -> None:
    if content[:1] == content[-1:] and content.count(content[:1]) == len(content):
        writer.tag(_CONSTANT)
        writer.raw(content[:1])
        return
    if len(content) <= 2 * _SAMPLE or len(writer.compression.pack(content[:_SAMPLE])) < _WORTH * _SAMPLE:
        packed = writer.compression.pack(content)
        if len(packed) + 3 < len(content):
            writer.tag(_PACKED)
            writer.block(packed)
            return
    writer.tag(_RAW)
    writer.raw(content)


def _read_plane(reader: Reader, count: int) -> np.ndarray:
    mode = reader.byte()
    if mode == _RAW:
        return np.frombuffer(reader.raw(count), np.uint8)
    if mode == _PACKED:
        return np.frombuffer(reader.compression.unpack(reader.block(), count), np.uint8)
    if mode == _CONSTANT:
        return np.full(count, reader.byte(), np.uint8)
    raise WireError(f"a plane of an unknown coding {mode} in the message; send it again")
