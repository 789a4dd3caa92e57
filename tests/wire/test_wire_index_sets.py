import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from framp.errors import OtherIndexSetError, WireError
from framp.messages import Task
from framp.wire import decode, encode
from framp.wire.body import INDICES, Reader, Writer
from framp.wire.gaps import BITMAP, EVERYTHING, NOTHING, RICE, RICE_OF_OTHERS, read_places, write_places
from framp.wire.index_set import read_indices, set_hash, write_indices

from .made import draw, entropy_bytes, mask, rehashed, same, task


def placed(places: list[int] | np.ndarray, length: int) -> bytes:
    writer = Writer()
    write_places(writer, np.asarray(places, dtype=np.int32), length)
    return b"".join(writer.parts)


def taken(code: bytes, length: int) -> list[int]:
    reader = Reader(memoryview(code), 0)
    found: list[int] = read_places(reader, length).tolist()
    reader.end()
    return found


def written(indices: Tensor, maskable: int, sections: list[int], previous: Tensor | None = None) -> bytes:
    writer = Writer()
    write_indices(writer, indices, maskable, sections, previous)
    return b"".join(writer.parts)


def test_codes_by_hand() -> None:
    assert placed([], 9) == bytes([NOTHING])
    assert placed(range(9), 9) == bytes([EVERYTHING])  # type: ignore[arg-type]
    # gaps 2, 0, 1: mean 1, so k is 0: 001 1 01, and two bits to fill the byte
    assert placed([2, 3, 5], 9) == bytes([RICE, 3, 1, 0b00110100])
    # gaps 5, 9: k is 2 (1 and 2 in the low bits: planes 11 and 00) or 3; with 2: 01 and 001 in unary
    assert placed([5, 15], 30) == bytes([RICE + 2, 2, 2, 0b11000100, 0b10000000])
    # all but the second and the fifth of six: gaps 1, 2
    assert placed([0, 2, 3, 5], 6) == bytes([RICE_OF_OTHERS, 2, 1, 0b01001000])


@given(st.integers(1, 400), st.data())
def test_places_come_back(length: int, data: st.DataObject) -> None:
    places = sorted(data.draw(st.sets(st.integers(0, length - 1))))
    assert taken(placed(places, length), length) == places


@pytest.mark.parametrize("share", [1e-5, 0.001, 1 / 64, 0.2, 0.38, 0.5, 0.62, 0.97, 0.99999])
@pytest.mark.parametrize("length", [1, 2, 63, 64, 5000, 1 << 18])
def test_places_of_any_density_come_back(share: float, length: int) -> None:
    places = np.flatnonzero(draw(f"places {share} {length}").random(length) < share)
    assert taken(placed(places, length), length) == places.tolist()
    first, last = np.array([0]), np.array([length - 1])
    assert taken(placed(first, length), length) == [0]
    assert taken(placed(last, length), length) == [length - 1]


def test_clumps_are_a_compressed_bitmap() -> None:
    places = np.concatenate([np.arange(start, start + 500) for start in range(0, 100_000, 4000)])
    code = placed(places, 100_000)
    assert code[0] == BITMAP
    assert len(code) < 600
    assert taken(code, 100_000) == places.tolist()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (bytes([3]), "unknown coding 3"),
        (bytes([200]), "unknown coding 200"),
        (bytes([RICE, 0, 0]), "0 places of 9"),
        (bytes([RICE, 10, 1, 255]), "10 places of 9"),
        (bytes([RICE, 3, 0]), "0 bytes cannot hold 3 places"),
        (bytes([RICE, 3, 9, *(9 * [0])]), "9 bytes cannot hold 3 places"),
        (bytes([RICE, 3, 1, 0b00110000]), "another number of places"),
        (bytes([RICE, 3, 1, 0b00110110]), "another number of places"),
        (bytes([RICE, 2, 2, 0b10100000, 0]), "another number of places"),
        (bytes([RICE, 1, 2, 0, 0b00100000]), "beyond its block"),
    ],
)
def test_codes_that_are_none(code: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        taken(code, 9)


def test_index_sets_by_hand() -> None:
    indices = torch.tensor([2, 3, 5, 9, 10], dtype=torch.int32)
    code = bytes([INDICES, 3, 9, 2, 4, 0, RICE, 3, 1, 0b00110100, EVERYTHING, NOTHING])
    assert written(indices, 15, [9, 2, 4]) == code
    reader = Reader(memoryview(code[1:]), 20)
    assert read_indices(reader, 15, 5, None).tolist() == [2, 3, 5, 9, 10]
    with pytest.raises(WireError, match="decodes to more"):
        read_indices(Reader(memoryview(code[1:]), 19), 15, 5, None)
    with pytest.raises(WireError, match="14 entries instead of 15"):
        written(indices, 15, [9, 2, 3])


@pytest.mark.parametrize("seed", range(6))
def test_skewed_masks_are_near_the_entropy_of_each_tensor(seed: int) -> None:
    generator = draw(f"skewed {seed}")
    lengths = [int(length) for length in generator.integers(2_000, 300_000, 8)]
    shares = 10.0 ** generator.uniform(-3.5, -0.01, 8)
    tensors = [generator.random(length) < share for length, share in zip(lengths, shares, strict=True)]
    held = np.flatnonzero(np.concatenate(tensors)).astype(np.int32)
    floor = entropy_bytes([int(tensor.sum()) for tensor in tensors], lengths)
    size = len(written(torch.from_numpy(held), sum(lengths), lengths))
    assert size <= 1.05 * floor + 20 * len(lengths)
    assert size < len(written(torch.from_numpy(held), sum(lengths), [sum(lengths)]))


class TestDifference:
    """A set close to the last one is sent as the difference."""

    BEFORE = torch.from_numpy(np.flatnonzero(draw("before").random(20_000) < 0.1).astype(np.int32))

    def after(self) -> Tensor:
        kept = np.setdiff1d(self.BEFORE.numpy(), self.BEFORE.numpy()[[1, 20, -1]])
        return torch.from_numpy(np.union1d(kept, [1, 2, 15_001]).astype(np.int32))

    def test_it_is_smaller_and_comes_back(self) -> None:
        sent = task(mask(20_000, self.after()))
        whole, short = encode(sent), encode(sent, previous=self.BEFORE)
        assert len(short) < len(whole) - 400
        assert same(decode(short, Task, previous=self.BEFORE), sent)
        assert same(decode(whole, Task, previous=self.BEFORE), sent)

    def test_the_same_set_again_takes_a_few_bytes(self) -> None:
        indices = self.BEFORE
        assert written(indices, 20_000, [20_000], indices) == bytes(
            [INDICES, 1, *(20_000 & 0x7F | 0x80, 20_000 >> 7 & 0x7F | 0x80, 20_000 >> 14), 1]
        ) + set_hash(indices.numpy()) + bytes([NOTHING])

    def test_the_whole_set_is_sent_where_that_is_smaller(self) -> None:
        sent = task(mask(20_000, range(1, 20_000, 11)))
        assert encode(sent, previous=self.BEFORE) == encode(sent)

    @pytest.mark.parametrize("other", [None, BEFORE[1:], torch.arange(5, dtype=torch.int32)])
    def test_a_receiver_with_another_set_says_so(self, other: Tensor | None) -> None:
        data = encode(task(mask(20_000, self.after())), previous=self.BEFORE)
        with pytest.raises(OtherIndexSetError, match="send the whole set"):
            decode(data, Task, previous=other)

    def test_a_set_beyond_the_model_is_no_base(self) -> None:
        before = torch.tensor([3, 50], dtype=torch.int32)
        code = bytes([1, 20, 1]) + set_hash(before.numpy()) + bytes([NOTHING])
        with pytest.raises(OtherIndexSetError):
            read_indices(Reader(memoryview(code), 100), 20, 2, before)

    def test_changed_differences_end_in_the_packages_error(self) -> None:
        sent = task(mask(20_000, self.after()))
        data, generator = encode(sent, previous=self.BEFORE), draw("difference")
        first = data.index(set_hash(self.BEFORE.numpy()))
        for _ in range(500):
            changed = bytearray(data)
            changed[first + int(generator.integers(0, 40))] ^= 1 << int(generator.integers(0, 8))
            try:
                decode(rehashed(bytes(changed)), Task, 1 << 20, self.BEFORE)
            except WireError:
                continue

    @given(st.sets(st.integers(0, 199)), st.sets(st.integers(0, 199)))
    def test_any_two_sets(self, before: set[int], after: set[int]) -> None:
        sent, base = task(mask(200, sorted(after))), torch.tensor(sorted(before), dtype=torch.int32)
        data = encode(sent, previous=base)
        assert same(decode(data, Task, previous=base), sent)
        assert len(data) <= len(encode(sent))
