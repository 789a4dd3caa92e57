from dataclasses import replace

import pytest
import torch

from framp.messages import Update
from framp.wire import ErrorFeedback, decode, encode

from .made import floats, full, layout, mask, narrow, update


def test_what_was_sent_and_what_is_owed_add_up_to_what_was_meant() -> None:
    feedback, submodel = ErrorFeedback(layout((20,), (30,))), mask(50, range(0, 50, 2))
    meant, sent = torch.zeros(25), torch.zeros(25)
    always_meant, always_sent = torch.zeros(3), torch.zeros(3)
    for round in range(20):
        told = update(values=floats(25, f"values {round}"), always=floats(3, f"always {round}"))
        got = decode(feedback.encode(told, submodel), Update)
        meant, sent = meant + told.values, sent + got.values
        always_meant, always_sent = always_meant + told.always, always_sent + got.always
        entries, owed, always_owed = feedback.residual(7)
        assert entries.tolist() == list(range(0, 50, 2))
        torch.testing.assert_close(sent + owed, meant, rtol=0, atol=1e-5)
        torch.testing.assert_close(always_sent + always_owed, always_meant, rtol=0, atol=1e-5)
        assert float(owed.abs().max()) < 0.05  # one step's error, however many rounds


def test_without_it_small_changes_are_lost_for_ever() -> None:
    values = torch.tensor([1.0, 0.001])
    plain = sum(decode(encode(update(values=values), "int8"), Update).values for _ in range(100))
    feedback = ErrorFeedback()
    fed = sum(decode(feedback.encode(update(values=values), full(2)), Update).values for _ in range(100))
    assert isinstance(plain, torch.Tensor)
    assert isinstance(fed, torch.Tensor)
    assert plain.tolist() == pytest.approx([100.0, 0.0])
    assert fed.tolist() == pytest.approx([100.0, 0.1], abs=0.005)


def test_a_residual_waits_until_its_entry_is_held_again() -> None:
    feedback = ErrorFeedback()
    feedback.encode(update(values=torch.tensor([1.0, 0.003, 0.001])), mask(10, [2, 4, 6]))
    feedback.encode(update(values=torch.tensor([1.0, 0.0])), mask(10, [2, 5]))
    entries, owed, _ = feedback.residual(7)
    assert entries.tolist() == [2, 4, 5, 6]
    assert owed.tolist() == pytest.approx([0, 0.003, 0, 0.001], abs=1e-6)
    got = decode(feedback.encode(update(values=torch.tensor([0.0, 0.0])), mask(10, [4, 6])), Update)
    assert got.values.tolist() == pytest.approx([0.003, 0.001], abs=2e-5)


def test_clients_do_not_owe_for_one_another() -> None:
    feedback = ErrorFeedback()
    feedback.encode(update(client=1, values=torch.tensor([1.0, 0.003])), full(2))
    alone = update(client=2, values=torch.tensor([1.0, 0.0]))
    assert feedback.encode(alone, full(2)) == encode(alone, "int8")


def test_another_smaller_network_starts_anew() -> None:
    feedback, part = ErrorFeedback(layout((4, 3), (2, 4), (5,))), narrow()
    feedback.encode(update(values=floats(10), always=floats(2)), part)
    other = replace(part, shapes=((3, 2), (2, 2), None, (2,)))
    told = update(values=floats(10), always=floats(2))
    again = ErrorFeedback(layout((4, 3), (2, 4), (5,)))
    assert feedback.encode(told, other) == again.encode(told, other)


def test_nothing_of_an_update_that_is_refused_comes_back() -> None:
    feedback = ErrorFeedback()
    feedback.encode(update(values=torch.tensor([1.0, float("nan")])), full(2))
    got = decode(feedback.encode(update(values=torch.tensor([1.0, 0.0])), full(2)), Update)
    assert bool(got.values.isfinite().all())
