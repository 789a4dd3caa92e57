from fractions import Fraction

import numpy as np
import pytest
import torch

from framp import rng
from framp.budgets import Budget
from framp.errors import DataError
from framp.messages import Description
from framp.server import Registry

BUDGETS = (Budget("1/4", Fraction(1, 4)), Budget("1", Fraction(1)))


def registry(clients: int, dimensions: int = 0) -> Registry:
    return Registry(
        BUDGETS,
        np.repeat(np.arange(2, dtype=np.int16), [clients - clients // 2, clients // 2]),
        np.ones(clients, dtype=np.int64),
        torch.empty(clients, dimensions),
    )


def test_descriptions_are_filed_by_client_in_whatever_order_they_arrive() -> None:
    descriptions = [Description(client, torch.full((3,), float(client)), 10 + client) for client in (2, 0, 1)]
    found = Registry.enrol(BUDGETS, np.array([0, 0, 1], dtype=np.int16), iter(descriptions))
    assert found.descriptors[:, 0].tolist() == [0, 1, 2]
    assert found.samples.tolist() == [10, 11, 12]
    assert [found.budget(client).name for client in range(3)] == ["1/4", "1/4", "1"]
    assert len(found) == 3


def test_a_rounds_participants_follow_from_seed_and_round() -> None:
    known = registry(50)
    assert known.sample(10, 0, 3) == known.sample(10, 0, 3)
    assert known.sample(10, 0, 3) != known.sample(10, 0, 4)
    assert known.sample(10, 0, 3) != known.sample(10, 1, 3)
    expected = rng.stream(0, 3, -1, "participants").choice(50, 10, replace=False, shuffle=False)
    assert known.sample(10, 0, 3) == expected.tolist()
    assert all(type(client) is int for client in known.sample(10, 0, 3))


def test_nobody_is_drawn_twice_and_everybody_can_be() -> None:
    known = registry(12)
    for round in range(30):
        drawn = known.sample(5, 0, round)
        assert len(set(drawn)) == 5
        assert all(0 <= client < 12 for client in drawn)
    assert sorted(known.sample(12, 0, 1)) == list(range(12))
    assert registry(1).sample(1, 0, 1) == [0]


def test_everybody_is_drawn_about_equally_often() -> None:
    """2000 rounds of 5 of 20: 500 times each, with a standard deviation of 19.4."""
    known = registry(20)
    counts = np.bincount([client for round in range(2000) for client in known.sample(5, 1, round)], minlength=20)
    assert counts.sum() == 10000
    assert abs(counts - 500).max() < 5 * 19.4


def test_a_million_clients_can_be_sampled() -> None:
    drawn = registry(1_000_000).sample(100, 0, 1)
    assert len(set(drawn)) == 100
    assert max(drawn) < 1_000_000
    assert 300_000 < np.mean(drawn) < 700_000  # 500,000 with a deviation of 29,000


DESCRIBED = [Description(client, torch.full((3,), float(client)), 10) for client in range(3)]


@pytest.mark.parametrize(
    ("descriptions", "message"),
    [
        ([DESCRIBED[0], DESCRIBED[0], DESCRIBED[1]], "not each of the 3 clients enrolled once"),
        (DESCRIBED[:2], "not each of the 3 clients enrolled once"),
        ([*DESCRIBED[:2], Description(3, torch.zeros(3), 10)], "not each of the 3 clients enrolled once"),
        ([*DESCRIBED[:2], Description(2, torch.zeros(3), 0)], "client 2 has no training samples"),
        ([*DESCRIBED[:2], Description(2, torch.zeros(4), 10)], "client 2 sent no valid descriptor"),
        ([*DESCRIBED[:2], Description(2, torch.tensor([0, float("nan"), 0]), 10)], "client 2 sent no valid descriptor"),
    ],
)
def test_descriptions_are_not_trusted(descriptions: list[Description], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Registry.enrol(BUDGETS, np.array([0, 0, 1], dtype=np.int16), descriptions)
