"""Whatever is sent arrives, bit for bit."""

import struct
import tracemalloc
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framp.errors import WireError
from framp.layout import ParameterLayout
from framp.messages import Score, Submodel, Task, Update
from framp.wire import decode, encode

from .made import draw, every_kind, floats, full, layout, mask, narrow, rehashed, same, task, update


@pytest.mark.parametrize("message", every_kind(), ids=lambda message: type(message).__name__)
def test_every_kind_of_message_arrives_bit_for_bit(message: Any) -> None:
    assert same(decode(encode(message), type(message)), message)


@st.composite
def masks(drawn: st.DrawFn) -> tuple[Submodel, ParameterLayout]:
    lengths = drawn(st.lists(st.sampled_from([0, 1, 2, 7, 64, 600, 3000]), min_size=1, max_size=4).filter(any))
    total = sum(lengths)
    shares = np.repeat([drawn(st.sampled_from([0.0, 0.001, 0.02, 0.3, 0.6, 0.99, 1.0])) for _ in lengths], lengths)
    generator = draw(f"mask {drawn(st.integers(0, 2**32))}")
    held = np.flatnonzero(generator.random(total) < shares)
    held = held if len(held) else np.array([drawn(st.integers(0, total - 1))])
    dtype = drawn(st.sampled_from([torch.float32, torch.float64]))
    return mask(total, held, dtype=dtype), layout(*((length,) for length in lengths), dtype=dtype)


@given(masks(), st.booleans())
def test_masks_of_any_density_arrive(drawn: tuple[Submodel, ParameterLayout], known: bool) -> None:
    submodel, whole = drawn
    sent = task(submodel)
    assert same(decode(encode(sent, layout=whole if known else None), Task), sent)


@given(st.lists(st.floats(width=32) | st.just(0.0), max_size=40), st.booleans())
def test_values_of_any_bits_arrive(values: list[float], double: bool) -> None:
    dtype = torch.float64 if double else torch.float32
    sent = update(values=torch.tensor(values, dtype=dtype), loss=values[0] if values else 0.0)
    assert same(decode(encode(sent), Update), sent)


def test_long_vectors_are_cut_and_put_together() -> None:
    values = torch.cat([torch.zeros(140_000), floats(150_000)])
    for sent in (update(values=values), update(values=values.double())):
        assert same(decode(encode(sent), Update), sent)
    submodel = mask(700_000, np.flatnonzero(draw("long").random(700_000) < np.linspace(0, 1, 700_000)))
    for whole in (None, layout((700_000,)), layout((100, 3000), (400_000,))):
        assert same(decode(encode(task(submodel), layout=whole), Task), task(submodel))


def test_a_score_by_hand() -> None:
    # one part of a key, 5 "u" | 3 integers of 1 byte: 2 and 9
    body = bytes([1, 5, 1, ord("u"), 3, 1, 2, 3, 1, 9])
    start = b"frmp" + struct.pack("<BBQ", 1, 5, len(body))
    assert encode(Score(("u",), 2, 9)) == start + blake2b(start + body, digest_size=16).digest() + body


def test_a_smaller_network_is_described_without_indices() -> None:
    wide, small = encode(task(mask(25, [0, 1, 2, 6, 7, 8, 12, 14, 16, 18]))), encode(task(narrow()))
    assert decode(small, Task).submodel.indices is None
    assert len(small) < len(wide) + 16
    many = Submodel(
        10**6, torch.arange(500_000, dtype=torch.int32), torch.zeros(500_000), torch.zeros(0), ((500_000,),)
    )
    assert len(encode(task(many))) < 400


def test_only_prototypes_that_are_held_travel() -> None:
    few, many = (update(prototypes=None, extractor=None, classes=None) for _ in range(2))
    assert len(encode(few)) == len(encode(many))
    counts = torch.zeros(50, dtype=torch.int64)
    counts[[3, 8]] = 300
    vectors = torch.zeros(50, 16)
    vectors[[3, 8]] = floats(32).view(2, 16)
    sent = update(prototypes=type(update().prototypes)(vectors, counts))  # type: ignore[misc]
    without = update(prototypes=None)
    assert len(encode(sent)) - len(encode(without)) < 2 * 16 * 4 + 50 * 2 + 20
    assert same(decode(encode(sent), Update), sent)


def test_tokens_of_any_size_take_as_many_bytes() -> None:
    sizes = {len(encode(update(token=token))) for token in (2**31, 2**62, 2**63 - 1)}
    assert len(sizes) == 1


def test_what_does_not_fit_is_refused_by_the_sender() -> None:
    class Other:
        pass

    for message, words in (
        (task(objective=Other()), "unknown objective 'Other'"),
        (task(mask(10, [3, 2])), "no ascending int32 vector"),
        (task(mask(10, [3, 10])), "no ascending int32 vector"),
        (update(values=torch.zeros(3, dtype=torch.float16)), "pass a vector of floats"),
        (update(classes=torch.zeros(3, dtype=torch.float16)), "does not fit into a message"),
        (Score(("x" * 5000,), 1, 1), "shorten it"),
    ):
        with pytest.raises(WireError, match=words):
            encode(message)
    with pytest.raises(WireError, match="Other is no message"):
        encode(Other())  # type: ignore[arg-type]
    with pytest.raises(WireError, match="no coding 'fp8' of values"):
        encode(task(), "fp8")
    with pytest.raises(WireError, match="pass the full model's layout"):
        encode(task(), layout=layout((5,)))


def test_what_is_not_expected_is_refused() -> None:
    data = encode(task())
    for changed, words in (
        (data[:20], "shorter than its header"),
        (b"safe" + data[4:], "no message of FRAMP's"),
        (data[:4] + b"\x02" + data[5:], "has version 2, and this side reads 1"),
        (data[:-1], "bytes after its header instead of"),
        (data + b"\0", "bytes after its header instead of"),
        (data[:-1] + bytes([data[-1] ^ 1]), "does not match its hash"),
        (rehashed(data + b"\0"), "has 1 bytes too many"),
        (rehashed(data[:-1]), "ends 1 bytes early"),
        (rehashed(data[:5] + b"\x09" + data[6:]), "a message of type number 9 arrived where Task was expected"),
    ):
        with pytest.raises(WireError, match=words):
            decode(changed, Task)
    with pytest.raises(WireError, match="a message of type Task arrived where Update or Score was expected"):
        decode(data, (Update, Score))


def test_a_task_over_its_budget_is_no_message() -> None:
    data = encode(task(full(20)))
    place = data.index(bytes([5, 3]) + b"1.0") + 5
    assert data[place : place + 6] == bytes([3, 1, 1, 3, 1, 1])
    with pytest.raises(WireError, match="exceed its budget"):
        decode(rehashed(data[: place + 5] + b"\x02" + data[place + 6 :]), Task)


@pytest.mark.parametrize("share", [1 / 64, 1 / 4, 0.9])
def test_decoding_needs_little_beside_its_result(share: float) -> None:
    size = 3_000_000
    held = np.flatnonzero(draw("held").random(size) < share)
    data = encode(task(mask(size, held)), layout=layout((1000, 1000), (2_000_000,)))
    tracemalloc.start()
    try:
        submodel = decode(data, Task).submodel
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert submodel.indices is not None
    assert peak <= 1.2 * (submodel.values.nbytes + submodel.indices.nbytes) + (3 << 20)
