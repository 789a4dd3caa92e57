"""Bytes that are no message end in the package's own error, without large allocations."""

import contextlib
import dataclasses
import resource
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from framp.errors import WireError
from framp.messages import Exam, LocalTraining, Manner, Prototypes, Task, Update
from framp.wire import decode, encode
from framp.wire.body import Reader
from framp.wire.compression import Compression
from framp.wire.gaps import RICE, read_places
from framp.wire.message import HEADER

from .made import draw, every_kind, floats, mask, rehashed, same, task, update

LIMIT = 1 << 20
KINDS: list[Any] = every_kind()
LARGER = [
    task(mask(4000, np.flatnonzero(draw("larger").random(4000) < 0.1))),
    task(mask(9000, np.arange(5000))),
    update(values=floats(500) * (torch.arange(500) % 3 == 0)),
]


def mutated(count: int, purpose: str) -> Iterator[tuple[Any, bytes, bytes]]:
    """Yield messages with flipped bytes, bytes left out or put in, or cut short."""
    generator = draw(purpose)
    for message in KINDS + LARGER:
        data = encode(message)
        for _ in range(-(-count // len(KINDS + LARGER))):
            changed = bytearray(data)
            for _ in range(generator.integers(1, 4)):
                place = int(generator.integers(0 if purpose == "raw" else HEADER, len(changed)))
                match generator.integers(0, 6):
                    case 0:
                        del changed[place : place + int(generator.integers(1, 9))]
                    case 1:
                        changed[place:place] = generator.bytes(int(generator.integers(1, 9)))
                    case 2:
                        changed[place] = int(generator.choice([0, 1, 2, 0x7F, 0x80, 0xFF]))
                    case 3:
                        changed[place] ^= 1 << int(generator.integers(0, 8))
                    case _:
                        changed[place] = int(generator.integers(0, 256))
                if len(changed) <= HEADER:
                    break
            yield message, data, bytes(changed)


def test_ten_thousand_changed_messages_end_in_the_packages_error_or_are_messages() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused, total = [], 0
    for message, whole, data in mutated(5000, "raw"):
        total += 1
        if data != whole:
            with pytest.raises(WireError):
                decode(data, type(message), LIMIT)
    tracemalloc.start()
    try:
        for message, _, data in mutated(5000, "body"):
            total += 1
            try:
                decode(rehashed(data), type(message), LIMIT)
            except WireError as error:
                refused.append(str(error))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total >= 10_000
    assert len(refused) > 2500
    assert not any("\n" in words for words in refused)
    assert peak < 16 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kilobytes


@given(st.binary(max_size=60), st.sampled_from(KINDS))
def test_any_bytes_are_refused(body: bytes, message: Any) -> None:
    with pytest.raises(WireError):
        decode(body, type(message), LIMIT)
    with contextlib.suppress(WireError):
        decode(rehashed(encode(message)[:HEADER] + body), type(message), LIMIT)


@given(st.sampled_from(KINDS), st.data())
def test_messages_cut_short_are_refused(message: Any, data: st.DataObject) -> None:
    whole = encode(message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for short in (whole[:cut], rehashed(whole[: max(cut, HEADER)])):
        with pytest.raises(WireError):
            decode(short, type(message), LIMIT)


def test_nothing_is_allocated_beyond_the_limit() -> None:
    large = update(values=torch.zeros(1_000_000), extractor=None, prototypes=None)
    data = encode(large)
    assert len(data) < 1000
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="decodes to more than is allowed"):
            decode(data, Update, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LIMIT
    assert same(decode(data, Update, 5 << 20), large)
    wide = update(prototypes=Prototypes(torch.zeros(3, 1_000_000), torch.zeros(3, dtype=torch.int64)))
    with pytest.raises(WireError, match="decodes to more than is allowed"):
        decode(encode(wide), Update, LIMIT)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "damaged"),
        (b"\xff" * 40, "damaged|instead of"),
        (Compression().pack(bytes(10**8)), "declares 100000000 bytes instead of 1000"),
        (Compression().pack(bytes(1000))[:-1], "damaged"),
        (Compression().pack(bytes(1000)) + b"\0", "damaged"),
    ],
)
def test_compressed_parts_are_not_believed(content: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        Compression().unpack(memoryview(content), 1000)


def test_a_frame_that_does_not_declare_its_size_is_refused() -> None:
    settings = zstandard.ZstdCompressionParameters(
        format=zstandard.FORMAT_ZSTD1_MAGICLESS, write_content_size=False, window_log=27
    )
    packed = zstandard.ZstdCompressor(compression_params=settings).compress(bytes(1000))
    with pytest.raises(WireError, match="instead of 1000"):
        Compression().unpack(memoryview(packed), 1000)


def test_lengths_are_bounded() -> None:
    for content in (b"\x80" * 12, b"\xff" * 7 + b"\x01", b"\x80\x00"):
        with pytest.raises(WireError, match=r"out of bounds|early"):
            Reader(memoryview(content), 0).size()
    assert Reader(memoryview(b"\xac\x02"), 0).size() == 300


def test_an_index_set_cannot_be_declared_longer_than_its_values() -> None:
    data = encode(task(mask(100, range(50))))
    with pytest.raises(WireError):
        decode(data[:-1], Task, LIMIT)
    place = data.index(bytes([100, 50]))
    for count in (49, 51, 101):
        changed = rehashed(data[:place] + bytes([100, count]) + data[place + 2 :])
        with pytest.raises(WireError, match=r"entries|values"):
            decode(changed, Task, LIMIT)


@pytest.mark.parametrize("low", [19, 30, 31])
def test_gaps_that_would_run_over_are_refused(low: int) -> None:
    """Gaps of 31 bits would make places that are negative, and the kernels would write there."""
    gaps = [2**low - 1, 2**low - 2, 40]
    bits = [gap >> bit & 1 for bit in range(low) for gap in gaps] + [1, 1, 1]
    code = np.packbits(np.array(bits, np.uint8)).tobytes()
    reader = Reader(memoryview(bytes([RICE + low, len(gaps), len(code)]) + code), LIMIT)
    with pytest.raises(WireError, match="unknown coding"):
        read_places(reader, 1000)


@pytest.mark.parametrize("batch", [0, -1])
def test_batches_of_nothing_are_refused(batch: int) -> None:
    """A client would draw them for ever."""
    whole = mask(40, [1, 5])
    asked = dataclasses.replace(task(whole), training=LocalTraining(2, batch, 0.1))
    for message in (asked, Exam(whole, 0, ("x",), Manner(batch))):
        with pytest.raises(WireError, match="has to be 1 or more"):
            decode(encode(message), (Task, Exam))


def test_what_is_no_plain_value_is_refused_instead_of_left_out() -> None:
    with pytest.raises(WireError, match="type int64"):
        encode(dataclasses.replace(update(), client=np.int64(3)))  # type: ignore[arg-type]
