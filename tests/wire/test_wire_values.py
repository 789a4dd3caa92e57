import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from framp.errors import WireError
from framp.messages import Task, Update
from framp.wire import decode, encode
from framp.wire.body import Reader, Writer
from framp.wire.compression import Compression
from framp.wire.planes import write_words
from framp.wire.values import read_values, write_values

from .made import floats, full, layout, mask, narrow, task, update

FINITE = st.floats(-(2.0**100), 2.0**100, width=32)


def through(values: Tensor, coding: str, sections: list[int] | None = None) -> Tensor:
    writer = Writer()
    write_values(writer, values, coding, [len(values)] if sections is None else sections)
    reader = Reader(memoryview(b"".join(writer.parts)), values.nbytes)
    found = read_values(reader)
    reader.end()
    assert found.dtype == values.dtype
    return found


def test_planes_by_hand() -> None:
    # 160 times 1.0 and -1.5 by turns: above 1.0 = 0x3f800000 by 0 and 0x400000, 23 bits; with the sign 24, of which
    # the first byte is 0 or 0x80, the second one 0, the last one the sign
    words = np.tile(np.array([0x3F800000, 0xBFC00000], dtype=np.uint32), 80)
    writer = Writer()
    write_words(writer, 160, lambda start, stop: words[start:stop])
    first, last = (Compression().pack(bytes(pair) * 80) for pair in ((0, 0x80), (0, 1)))
    packed = bytes([1, len(first)]) + first, bytes([1, len(last)]) + last
    code = bytes([1, 0, 0, 0x80, 0x3F, 24]) + packed[0] + bytes([2, 0]) + packed[1]
    assert b"".join(writer.parts) == code
    # 300 times 1.0 need the sign alone
    words = np.full(300, 0x3F800000, dtype=np.uint32)
    writer = Writer()
    write_words(writer, 300, lambda start, stop: words[start:stop])
    assert b"".join(writer.parts) == bytes([1, 0, 0, 0x80, 0x3F, 1, 2, 0])
    few = Writer()
    noise = np.array([0x12345678, 0xFEDCBA98], dtype=np.uint32)
    write_words(few, 2, lambda start, stop: noise[start:stop])
    assert b"".join(few.parts) == bytes([0]) + noise.tobytes()


def test_what_is_sent_without_loss_is_smaller_where_exponents_are_alike() -> None:
    values = torch.where(floats(50_000) > 0, 1, -1) * (0.02 + 0.02 * torch.rand(50_000, generator=torch.manual_seed(0)))
    assert len(encode(update(values=values))) < 0.81 * values.nbytes
    assert len(encode(update(values=torch.zeros(50_000)))) < 300


@given(st.lists(FINITE, max_size=30))
def test_half_precision_is_rounded_to_the_nearest(values: list[float]) -> None:
    sent = torch.tensor(values, dtype=torch.float32)
    clamped = sent.clamp(-65504, 65504)
    assert torch.equal(through(sent, "fp16"), clamped.half().float())
    assert bool(((through(sent, "fp16") - clamped).abs() <= 2.0**-11 * clamped.abs() + 2.0**-25).all())
    assert torch.equal(through(sent, "bf16"), sent.bfloat16().float())
    assert bool(((through(sent, "bf16") - sent).abs() <= 2.0**-8 * sent.abs() + 1e-40).all())


def test_of_double_precision_too() -> None:
    values = floats(1000, dtype=torch.float64)
    assert torch.equal(through(values, "fp32"), values)
    assert torch.equal(through(values, "fp16"), values.half().double())
    assert torch.equal(through(values, "bf16"), values.bfloat16().double())
    assert float((through(values, "int8") - values).abs().max()) <= float(values.abs().max()) / 254 * (1 + 1e-12)


def test_bytes_by_hand() -> None:
    # scales 1/127 and 2/127: the codes of the first section are 127 and -64, those of the second -127 and 32
    values = torch.tensor([1.0, -0.5, -2.0, 0.5])
    assert through(values, "int8", [2, 2]).tolist() == pytest.approx([1.0, -64 / 127, -2.0, 64 / 127], rel=1e-6)


@given(st.lists(FINITE, min_size=1, max_size=30), st.integers(0, 30))
def test_bytes_are_off_by_half_a_step_at_most(values: list[float], cut: int) -> None:
    sent, cut = torch.tensor(values), min(cut, len(values))
    found = through(sent, "int8", [cut, len(values) - cut])
    for part in (slice(0, cut), slice(cut, None)):
        if len(sent[part]):
            step = float(sent[part].abs().max()) / 127
            assert float((found[part] - sent[part]).abs().max()) <= 0.5 * step * (1 + 1e-5) + 1e-44


def test_long_sections_are_quantised_across_chunks() -> None:
    values, sections = floats(300_000), [131_000, 0, 100, 168_900]
    found, place = through(values, "int8", sections), 0
    for length in sections:
        part = values[place : place + length]
        if length:
            scale = part.abs().max() / 127
            assert torch.equal(found[place : place + length], (part / scale).round() * scale)
        place += length


@pytest.mark.parametrize("coding", ["fp32", "fp16", "bf16", "int8"])
def test_what_is_no_number_does_not_become_one(coding: str) -> None:
    """The server refuses such an update, however it is coded."""
    found = through(torch.tensor([1.0, float("nan"), 2.0]), coding)
    assert not bool(found.isfinite().all())
    assert torch.equal(through(torch.zeros(3), coding), torch.zeros(3))
    assert through(torch.zeros(0), coding).shape == (0,)


def test_scales_are_those_of_the_tensors() -> None:
    values = torch.tensor([1e-3, -1e-3, 5.0, 1e-6])
    whole = layout((2, 2), (2,), always=(2,))
    submodel = mask(6, [0, 3, 4, 5], always=2)
    sent = update(values=values, always=torch.tensor([1.0, 0.1]))
    close = decode(encode(sent, "int8", whole, submodel=submodel), Update)
    assert close.values[:2].tolist() == pytest.approx([1e-3, -1e-3], rel=1e-6)
    assert decode(encode(sent, "int8"), Update).values[:2].tolist() == [0, 0]
    narrower = decode(encode(task(narrow()), "int8", layout((4, 3), (2, 4), (5,), always=(3,))), Task)
    assert float((narrower.submodel.values - narrow().values).abs().max()) < 0.02


@pytest.mark.parametrize(("coding", "share"), [("fp16", 0.5), ("bf16", 0.5), ("int8", 0.25)])
def test_smaller_codings_are_smaller(coding: str, share: float) -> None:
    sent = task(full(40_000))
    assert len(encode(sent, coding)) < (share + 0.02) * 4 * 40_000
    assert decode(encode(sent, coding), Task).submodel.always.shape == (3,)


def test_sections_have_to_fit() -> None:
    with pytest.raises(WireError, match="hold 4 values instead of 5"):
        through(floats(5), "int8", [4])
