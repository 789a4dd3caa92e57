from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from framp.budgets import Budget
from framp.evaluation import evaluate
from framp.federation import Federation
from framp.messages import Exam, Manner, Message, Reply, Score
from framp.wire import Traffic

MakeFederation = Callable[..., Federation]

CLIENTS = [1, 2, 3, 4, 9, 5]
UNION = {"1": 30, "1/4": 8, "1/2": 20, "1/8": 4, "3/4": 40, "1/100": 2}


class Scripted:
    """An engine that gives prepared marks, in an order that depends on nothing."""

    traffic = Traffic()

    def __init__(self) -> None:
        self.exams: list[Exam] = []

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        for message in messages:
            assert isinstance(message, Exam)
            self.exams.append(message)
        for exam in sorted(self.exams, key=lambda exam: (exam.key[1], exam.key[0])):
            if exam.client is None:
                yield Score(exam.key, UNION[exam.key[1]], 40)
            else:
                yield Score(exam.key, CLIENTS[exam.client], 10)

    def close(self) -> None:
        pass


def test_accuracies_by_hand(toy_federation: MakeFederation) -> None:
    server, engine = toy_federation().server, Scripted()
    found = evaluate(
        server, engine, 7, Manner(33, True), [Budget.parse("3/4"), Budget.parse("1/100"), Budget.parse("1/2")]
    )
    assert found.round == 7
    assert found.clients == [0.1, 0.2, 0.3, 0.4, 0.9, 0.5]
    assert found.local == pytest.approx(2.4 / 6, abs=1e-15)
    assert found.groups == pytest.approx({"1/8": 0.15, "1/2": 0.35, "1": 0.7}, abs=1e-15)
    expected = {"1/8": 0.1, "1/2": 0.5, "1": 0.75, "3/4": 1.0, "1/100": 0.05}
    assert found.union_by_size == expected
    assert list(found.union_by_size) == list(expected)  # trained sizes first
    assert found.union == pytest.approx((0.1 + 0.5 + 0.75) / 3, abs=1e-15)
    assert all(exam.manner == Manner(33, True) for exam in engine.exams)
    assert [exam.client for exam in engine.exams] == [None] * 5 + list(range(6))
    held = {exam.key[1]: exam.submodel.values.numel() for exam in engine.exams if exam.client is None}
    assert held == {"1": 1544, "3/4": 1158, "1/2": 772, "1/8": 193, "1/100": 15}
    own = [exam.submodel.values.numel() for exam in engine.exams if exam.client is not None]
    assert own == [193, 193, 772, 772, 1544, 1544]


def test_the_work_of_a_budgets_clients_is_their_mean(toy_federation: MakeFederation) -> None:
    """A slice of as many channels has the same work everywhere, a mask that of its own entries."""
    server, engine = toy_federation().server, Scripted()
    assert server.work is not None
    found = evaluate(server, engine, 1, Manner(10))
    own = [server.work.share(exam.submodel.indices) for exam in engine.exams if exam.client is not None]
    assert list(found.work) == ["1/8", "1/2", "1"]
    assert list(found.work.values()) == [(own[0] + own[1]) / 2, (own[2] + own[3]) / 2, 1.0]
    assert found.work["1/8"] > 1 / 8  # early layers have large weights, each of which works on large maps

    sliced = toy_federation({"recipe": "heterofl", "federation.budgets": ["1/4", "1/2", "1"]}).server
    assert sliced.work is not None
    assert evaluate(sliced, Scripted(), 1, Manner(10)).work["1/4"] == sliced.work.share(
        sliced.union(sliced.registry.budgets[0], 1).indices
    )


def test_where_the_work_cannot_be_counted_nothing_is_said_of_it(toy_federation: MakeFederation) -> None:
    server = toy_federation().server
    server.work = None
    assert evaluate(server, Scripted(), 1, Manner(10)).work == {}


def test_a_method_that_ignores_budgets_is_examined_once_for_all_sizes(toy_federation: MakeFederation) -> None:
    server, engine = toy_federation({"recipe": "fedavg"}).server, Scripted()
    found = evaluate(server, engine, 1, Manner(10), [Budget.parse("3/4")])
    assert [exam.key for exam in engine.exams if exam.client is None] == [("union", "1")]
    assert found.union_by_size == {"1/8": 0.75, "1/2": 0.75, "1": 0.75, "3/4": 0.75}
    assert found.union == 0.75


def test_local_is_the_mean_over_clients_not_over_groups(toy_federation: MakeFederation) -> None:
    values: dict[str, Any] = {"federation.budgets": ["1/8", "1"], "federation.shares": [5 / 6, 1 / 6]}
    found = evaluate(toy_federation(values).server, Scripted(), 1, Manner(10))
    assert found.groups == pytest.approx({"1/8": 1.9 / 5, "1": 0.5}, abs=1e-15)
    assert found.local == pytest.approx(2.4 / 6, abs=1e-15)


def test_a_budget_that_nobody_has_is_no_group(toy_federation: MakeFederation) -> None:
    values: dict[str, Any] = {"federation.shares": [0.5, 0.0, 0.5]}
    found = evaluate(toy_federation(values).server, Scripted(), 1, Manner(10))
    assert found.local == pytest.approx(0.4, abs=1e-15)
    assert found.groups == pytest.approx({"1/8": 0.2, "1": 0.6}, abs=1e-15)
    assert found.union_by_size == {"1/8": 0.1, "1": 0.75}
    assert found.union == pytest.approx((0.1 + 0.75) / 2, abs=1e-15)
