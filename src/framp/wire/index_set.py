"""Index sets: section by section (the tensors of the layout), whole or as the difference from the set sent before.

Sections are kept or dropped very unevenly, so each has its own code. Long ones are cut, so that decoding needs little
memory beside its result.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from framp.errors import OtherIndexSetError, WireError
from framp.wire.body import INDICES, Reader, Writer
from framp.wire.gaps import read_places, write_places

BLOCK = 1 << 18
_WHOLE, _DIFFERENCE = 0, 1
_HASH = 8
_LARGEST = 2**31 - 1
"""Indices are int32."""
_MOST_SECTIONS = 1 << 16


def set_hash(indices: np.ndarray) -> bytes:
    """Name an index set."""
    return blake2b(np.ascontiguousarray(indices, "<i4").data, digest_size=_HASH).digest()


def write_indices(
    writer: Writer, indices: Tensor, maskable: int, sections: Sequence[int], previous: Tensor | None
) -> None:
    """Add an ascending index set; where it is smaller, as the difference from the one that the receiver has."""
    held = indices.numpy()
    if held.dtype != np.int32 or held.ndim != 1 or not _ascending(held, maskable):
        raise WireError(f"an index set is no ascending int32 vector below {maskable}; sort it")
    if sum(sections) != maskable:
        raise WireError(f"the sections hold {sum(sections)} entries instead of {maskable}; pass the model's own layout")
    writer.tag(INDICES)
    writer.size(len(sections))
    for length in sections:
        writer.size(length)
    whole = Writer(writer.compression)
    for start, stop, places in _parts(held, sections):
        write_places(whole, places, stop - start)
    if previous is not None:
        before = previous.numpy()
        difference = Writer(writer.compression)
        for (start, stop, places), (_, _, others) in zip(_parts(held, sections), _parts(before, sections), strict=True):
            write_places(difference, np.flatnonzero(_either(places, others, stop - start)), stop - start)
        if _length(difference) + _HASH < _length(whole):
            writer.tag(_DIFFERENCE)
            writer.raw(set_hash(before))
            writer.parts += difference.parts
            return
    writer.tag(_WHOLE)
    writer.parts += whole.parts


def read_indices(reader: Reader, maskable: int, count: int, previous: Tensor | None) -> Tensor:
    """Take an index set of so many entries; its tag has been taken."""
    number = reader.size()
    if number > _MOST_SECTIONS:
        raise WireError(f"an index set of {number} sections; there are at most {_MOST_SECTIONS}")
    sections = [reader.size() for _ in range(number)]
    if sum(sections) != maskable or not 0 <= count <= maskable <= _LARGEST:
        raise WireError(f"an index set of {count} in {sum(sections)} entries is not one of {maskable}; send it again")
    kind = reader.byte()
    if kind not in (_WHOLE, _DIFFERENCE):
        raise WireError(f"an index set of an unknown coding {kind}; send it again")
    before = _previous(reader, previous, maskable) if kind == _DIFFERENCE else np.empty(0, np.int32)
    reader.claim(4 * count)
    held = np.empty(count, np.int32)
    filled = 0
    for start, stop, others in _parts(before, sections):
        places = read_places(reader, stop - start)
        if kind == _DIFFERENCE:
            places = np.flatnonzero(_either(places, others, stop - start))
        if filled + len(places) > count:
            raise WireError(f"an index set has more than the {count} entries that have values; send it again")
        np.add(places, start, out=held[filled : filled + len(places)], casting="unsafe")
        filled += len(places)
    if filled != count:
        raise WireError(f"an index set has {filled} entries instead of the {count} that have values; send it again")
    return torch.from_numpy(held)


def _previous(reader: Reader, previous: Tensor | None, maskable: int) -> np.ndarray:
    named = bytes(reader.raw(_HASH))
    before = np.empty(0, np.int32) if previous is None else previous.numpy()
    if previous is None or set_hash(before) != named or not _ascending(before, maskable):
        have = "none" if previous is None else set_hash(before).hex()
        raise OtherIndexSetError(
            f"the index set is the difference from set {named.hex()}, and the receiver has {have}; send the whole set"
        )
    return before


def _either(places: np.ndarray, others: np.ndarray, length: int) -> np.ndarray:
    """Tell which places below a length are in exactly one of two sets."""
    mask = np.zeros(length, bool)
    mask[places] = True
    mask[others] ^= True
    return mask


def _parts(indices: np.ndarray, sections: Sequence[int]) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield the start and the end of each block of each section, and an index set's places in it."""
    starts: list[int] = []
    end = 0
    for length in sections:
        begin, end = end, end + length
        starts += range(begin, end, BLOCK)
    edges = np.array([*starts, end], np.int32)
    places = np.searchsorted(indices, edges)  # of one type: else the whole set is converted first
    for number, start in enumerate(starts):
        first, last = places[number : number + 2]
        yield start, int(edges[number + 1]), indices[first:last] - edges[number]


def _ascending(indices: np.ndarray, below: int) -> bool:
    if not len(indices):
        return True
    return bool((indices[1:] > indices[:-1]).all()) and int(indices[0]) >= 0 and int(indices[-1]) < below


def _length(writer: Writer) -> int:
    return sum(map(len, writer.parts))
