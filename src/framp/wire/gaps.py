"""A set of places below a block's length, coded by the smallest of four ways, without a loop over places.

Rice codes: of each gap between neighbours the lowest k bits as they are, and the rest in unary. All lowest bits come
first, plane by plane, then the unary part: as many zeros as it says, and a one. Of a set of more than half of the
places, those that it does not have are coded.
"""

import numpy as np

from framp.errors import WireError
from framp.wire.body import Reader, Writer

NOTHING, EVERYTHING, BITMAP, RICE, RICE_OF_OTHERS = 0, 1, 2, 32, 64
"""The byte before a block; to the Rice codes k is added."""
_MOST_LOW_BITS = 18
"""Blocks are not longer than 2 to the power of it."""
_LEAST_BITMAP = 64
"""Bytes below which a compressed bitmap is not worth the try."""


def write_places(writer: Writer, places: np.ndarray, length: int) -> None:
    """Add ascending places below a length."""
    if len(places) in (0, length):
        writer.tag(EVERYTHING if len(places) else NOTHING)
        return
    mask = np.zeros(length, bool)
    mask[places] = True
    few, kind = places, RICE
    if 2 * len(places) > length:
        few, kind = np.flatnonzero(~mask), RICE_OF_OTHERS
    gaps = few.copy()
    gaps[1:] -= few[:-1]
    gaps[1:] -= 1
    low, size = _best(gaps)
    packed = writer.compression.pack(np.packbits(mask).tobytes()) if length > 8 * _LEAST_BITMAP else None
    if packed is not None and len(packed) < size:
        writer.tag(BITMAP)
        writer.block(packed)
        return
    writer.tag(kind + low)
    writer.size(len(few))
    writer.block(_rice(gaps, low))


def read_places(reader: Reader, length: int) -> np.ndarray:
    """Take ascending places below a length."""
    kind = reader.byte()
    if kind == NOTHING:
        return np.empty(0, np.int64)
    if kind == EVERYTHING:
        return np.arange(length)
    if kind == BITMAP:
        bits = np.frombuffer(reader.compression.unpack(reader.block(), -(-length // 8)), np.uint8)
        return np.flatnonzero(np.unpackbits(bits, count=length).view(bool))
    if kind < RICE or kind // RICE > RICE_OF_OTHERS // RICE or kind % RICE > _MOST_LOW_BITS:
        raise WireError(f"a part of an index set of an unknown coding {kind}; send it again")
    count = reader.size()
    if not 0 < count <= length:
        raise WireError(f"a part of an index set has {count} places of {length}; send it again")
    few = _places(reader.block(), count, kind % RICE, length)
    if kind < RICE_OF_OTHERS:
        return few
    mask = np.ones(length, bool)
    mask[few] = False
    return np.flatnonzero(mask)


def _best(gaps: np.ndarray) -> tuple[int, int]:
    """Return the number of low bits that makes the shortest code, and about how many bytes it takes."""
    mean = float(gaps.mean()) + 1
    middle = max(0, int(np.log2(mean * np.log(2)))) if mean > 1 else 0
    sizes = {
        low: len(gaps) * (low + 1) + int((gaps >> low).sum(dtype=np.int64))
        for low in range(max(0, middle - 1), min(middle + 2, _MOST_LOW_BITS + 1))
    }
    low = min(sizes, key=lambda low: (sizes[low], low))
    return low, -(-sizes[low] // 8) + 3


def _rice(gaps: np.ndarray, low: int) -> bytes:
    count = len(gaps)
    ends = np.cumsum((gaps >> low) + 1)
    bits = np.zeros(count * low + int(ends[-1]), np.uint8)
    for bit in range(low):
        np.bitwise_and(gaps >> bit, 1, out=bits[bit * count : (bit + 1) * count], casting="unsafe")
    ends += count * low - 1
    bits[ends] = 1
    return np.packbits(bits).tobytes()


def _places(code: memoryview, count: int, low: int, length: int) -> np.ndarray:
    most = count * (low + 1) + (length - count >> low)
    if not count * (low + 1) <= 8 * len(code) < most + 8:
        raise WireError(f"a Rice code of {len(code)} bytes cannot hold {count} places of {length}; send it again")
    bits = np.unpackbits(np.frombuffer(code, np.uint8))
    places = np.flatnonzero(bits[count * low :].view(bool))  # of truth values it is ten times as fast
    if len(places) != count or len(bits) - count * low - int(places[-1]) > 8:
        raise WireError("a Rice code in the message has another number of places than it says; send it again")
    if low:
        places -= np.arange(count)
        places <<= low
        rest = np.zeros(count, np.int32)
        for bit in range(low):
            rest |= bits[bit * count : (bit + 1) * count].astype(np.int32) << bit
        rest += 1
        places += np.cumsum(rest)
        places -= 1
    if int(places[-1]) >= length:
        raise WireError("a Rice code in the message has a place beyond its block; send it again")
    return places
