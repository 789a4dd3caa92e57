from collections.abc import Callable

import pytest
import torch

from framp.federation import Federation
from framp.messages import Describe, Exam, Manner, Score
from framp.wire import Wire, decode, encode

from .made import floats, layout, mask, same, task, update

MakeFederation = Callable[..., Federation]


def test_without_loss_a_message_is_only_measured() -> None:
    wire = Wire(layout=layout((100,)))
    asked, told = task(), update()
    assert wire.carry(asked) is asked
    assert (wire.traffic.down, wire.traffic.up) == (len(encode(asked, layout=wire.layout)), 0)
    assert wire.carry(told, asked) is told
    wire.carry(Describe(0, 1))
    assert wire.traffic.down == len(encode(asked, layout=wire.layout)) + len(encode(Describe(0, 1)))
    assert wire.traffic.up == len(encode(told))


@pytest.mark.parametrize("values", ["fp16", "bf16", "int8"])
def test_otherwise_the_receiver_gets_what_was_decoded(values: str) -> None:
    whole = layout((40,), (60,))
    wire, asked = Wire(values, whole), task()
    told = update(values=floats(5), always=floats(3))
    got, back = wire.carry(asked), wire.carry(told, asked)
    assert same(got, decode(encode(asked, values, whole), type(asked)))
    assert same(back, decode(encode(told, values, whole, submodel=asked.submodel), type(told)))
    assert not torch.equal(got.submodel.values, asked.submodel.values)
    exam = Exam(mask(100, [1, 5, 8]), None, ("union", "1"), Manner(10))
    assert not torch.equal(wire.carry(exam).submodel.values, exam.submodel.values)


def test_exams_do_not_count() -> None:
    for wire in (Wire(), Wire("fp16")):
        wire.carry(Exam(mask(100, [1, 5, 8]), None, ("union", "1"), Manner(10)))
        wire.carry(Score(("union", "1"), 1, 2))
        assert (wire.traffic.down, wire.traffic.up) == (0, 0)


@pytest.mark.parametrize(("recipe", "values"), [("framp", "fp16"), ("fiarse", "bf16"), ("heterofl", "int8")])
def test_engines_agree_on_rounded_values_bit_for_bit(recipe: str, values: str, toy_federation: MakeFederation) -> None:
    settings = {"recipe": recipe, "wire.values": values}
    exact = toy_federation({"recipe": recipe})
    serial = toy_federation(settings)
    parallel = toy_federation(settings | {"engine.name": "processes", "engine.workers": 2})
    with parallel:
        for one, other, third in zip(serial.train(2), parallel.train(2), exact.train(2), strict=True):
            assert (one.loss, one.bytes_down, one.bytes_up) == (other.loss, other.bytes_down, other.bytes_up)
            assert one.bytes_down < third.bytes_down
            assert one.bytes_up < third.bytes_up
        assert serial.server.digest() == parallel.server.digest() != exact.server.digest()
        assert serial.evaluate() == parallel.evaluate()
