import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from framp.budgets import Budget
from framp.messages import LocalTraining, Prototypes, Submodel, Task, Update
from framp.server import Inbox
from framp.stage2_extraction import Selection
from framp.stage3_objective import Aligned, CrossEntropy, LabelMasked

MASKABLE, ALWAYS, CLASSES, WIDTH, SAMPLES = 10, 2, 3, 4, 6
PROTOTYPES = torch.Size([CLASSES, WIDTH])


def task(client: int, aligned: bool = True, indices: list[int] | None = None) -> Task:
    held = [0, 3, 7] if indices is None else indices
    part = Submodel(MASKABLE, torch.tensor(held, dtype=torch.int32), torch.ones(len(held)), torch.ones(ALWAYS))
    objective = Aligned(0.2, "head") if aligned else CrossEntropy()
    return Task(5, client, 100 + client, Budget.parse("1/2"), part, objective, LocalTraining(1, 1, 0.1), None, 0)


def prototypes(**changes: Any) -> Prototypes:
    values: dict[str, Any] = {"vectors": torch.ones(CLASSES, WIDTH), "counts": torch.tensor([4, 0, 2])}
    return Prototypes(**(values | changes))


def update(client: int, **changes: Any) -> Update:
    values: dict[str, Any] = {
        "round": 5,
        "client": client,
        "token": 100 + client,
        "values": torch.tensor([1.0, 2.0, 3.0]) * (client + 1),
        "always": torch.tensor([0.5, -0.5]),
        "prototypes": prototypes(),
        "loss": 1.0 + client,
    }
    return Update(**(values | changes))


def inbox(clients: int = 3, aligned: bool = True, memory: int = 1 << 20) -> Inbox:
    made = Inbox(memory)
    for client in range(clients):
        asked = task(client, aligned)
        made.expect(asked, Selection(asked.submodel.indices), ALWAYS, PROTOTYPES, SAMPLES)
    return made


def bad(value: float, length: int = 3) -> Tensor:
    values = torch.ones(length)
    values[1] = value
    return values


NAN, INF = float("nan"), float("inf")
REJECTED: dict[str, list[dict[str, Any]]] = {
    "client was not asked": [{"client": 9}, {"client": -1}],
    "wrong round": [{"round": 4}, {"round": 6}],
    "wrong task": [{"token": 0}, {"token": 102}],
    "wrong shape": [
        {"values": torch.ones(2)},
        {"values": torch.ones(4)},
        {"values": torch.ones(3, 1)},
        {"values": torch.ones(MASKABLE)},
        {"values": torch.ones(0)},
        {"always": torch.ones(1)},
        {"always": torch.ones(())},
    ],
    "wrong type": [
        {"values": torch.ones(3).double()},
        {"values": torch.ones(3).half()},
        {"always": torch.ones(2).double()},
        {"prototypes": prototypes(vectors=torch.ones(CLASSES, WIDTH).double())},
        {"prototypes": prototypes(counts=torch.tensor([4.0, 0.0, 2.0]))},
    ],
    "values not finite or implausibly large": [
        {"values": bad(NAN)},
        {"values": bad(3e38)},
        {"values": bad(-1.1e6)},
        {"values": bad(INF)},
        {"values": bad(-INF)},
        {"always": bad(NAN, 2)},
        {"always": bad(INF, 2)},
    ],
    "malformed": [
        {"round": 5.0},
        {"round": True},
        {"client": [1]},
        {"client": 1.0},
        {"token": "101"},
        {"values": None},
        {"values": [1.0, 2.0, 3.0]},
        {"values": torch.ones(3).to_sparse()},
        {"values": torch.ones(3, device="meta")},
        {"values": torch.ones(3, requires_grad=True)},
        {"always": None},
        {"loss": None},
        {"loss": "2.0"},
        {"loss": torch.ones(2)},
        {"prototypes": {}},
        {"prototypes": prototypes(vectors=None)},
        {"prototypes": prototypes(counts=[4, 0, 2])},
        {"prototypes": prototypes(counts=torch.tensor([4, 0, 2], device="meta"))},
    ],
    "loss not finite or implausibly large": [{"loss": NAN}, {"loss": INF}, {"loss": -INF}, {"loss": 1e300}],
    "prototypes missing or not asked for": [{"prototypes": None}],
    "wrong prototype shape": [
        {"prototypes": prototypes(vectors=torch.ones(CLASSES, WIDTH + 1))},
        {"prototypes": prototypes(vectors=torch.ones(CLASSES + 1, WIDTH))},
        {"prototypes": prototypes(counts=torch.tensor([6, 0]))},
    ],
    "prototypes not finite or implausibly large": [
        {"prototypes": prototypes(vectors=torch.full((CLASSES, WIDTH), 3e38))},
        {"prototypes": prototypes(vectors=torch.full((CLASSES, WIDTH), NAN))},
        {"prototypes": prototypes(vectors=torch.full((CLASSES, WIDTH), -INF))},
    ],
    "implausible prototype counts": [
        {"prototypes": prototypes(counts=torch.tensor([7, -1, 0]))},
        {"prototypes": prototypes(counts=torch.tensor([4, 1, 2]))},
        {"prototypes": prototypes(counts=torch.tensor([0, 0, 0]))},
    ],
}
CASES = [(reason, change) for reason, changes in REJECTED.items() for change in changes]


@pytest.mark.parametrize(("reason", "change"), CASES, ids=[f"{reason}-{list(change)}" for reason, change in CASES])
def test_what_does_not_answer_its_task_is_rejected_and_counted(reason: str, change: dict[str, Any]) -> None:
    box = inbox()
    wrong = dataclasses.replace(update(1), **change)
    assert box.objection(wrong) == reason
    box.receive(update(0))
    box.receive(wrong)
    box.receive(update(2))
    assert dict(box.rejected) == {reason: 1}
    assert [one.client for one in box.accepted] == [0, 2]
    assert box.loss == 2.0
    box.receive(update(1))  # a right answer may still come
    assert [one.client for one in box.accepted] == [0, 1, 2]
    box.close()


def test_counts_that_sum_up_only_because_they_overflow_are_implausible() -> None:
    counts = torch.tensor([2**63 - 1, 2**63 - 1, 2 + SAMPLES])
    assert inbox().objection(update(0, prototypes=prototypes(counts=counts))) == "implausible prototype counts"


def test_a_loss_that_is_not_a_number_does_not_become_the_rounds() -> None:
    box = inbox()
    box.receive(update(0))
    box.receive(update(1, loss=NAN))
    assert box.loss == 1.0


def test_prototypes_that_nobody_asked_for_are_rejected() -> None:
    box = inbox(aligned=False)
    assert box.objection(update(0)) == "prototypes missing or not asked for"
    assert box.objection(update(0, prototypes=None)) is None


def test_the_first_of_two_answers_counts() -> None:
    box = inbox()
    box.receive(update(1))
    box.receive(update(1, values=torch.full((3,), 9.0), loss=50.0))
    assert dict(box.rejected) == {"answered twice": 1}
    assert box.accepted[0].values.read(0, 3).tolist() == [2, 4, 6]
    assert box.loss == 2.0


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_updates_come_out_by_client_with_their_own_submodels_entries(memory: int) -> None:
    box = inbox(memory=memory)
    for client in (2, 0, 1):
        box.receive(update(client, prototypes=prototypes(counts=torch.tensor([client, 0, 6 - client]))))
    assert [one.client for one in box.accepted] == [0, 1, 2]
    for one in box.accepted:
        assert one.maskable == MASKABLE
        assert one.indices is not None
        assert one.indices.read(0, 3).tolist() == [0, 3, 7]
        assert one.values.read(0, 3).tolist() == {0: [1, 2, 3], 1: [2, 4, 6], 2: [3, 6, 9]}[one.client]
        assert one.always.tolist() == [0.5, -0.5]
    assert [one.counts.tolist() for one in box.prototypes] == [[0, 0, 6], [1, 0, 5], [2, 0, 4]]
    assert box.loss == 2.0
    assert not box.rejected
    box.close()


def test_an_empty_inbox() -> None:
    box = Inbox(0)
    assert (box.accepted, box.prototypes, box.loss) == ([], [], None)
    box.close()


def test_a_model_without_anything_that_always_travels() -> None:
    box = Inbox(0)
    part = Submodel(MASKABLE, None, torch.ones(MASKABLE), torch.empty(0))
    asked = Task(5, 0, 100, Budget.parse("1"), part, CrossEntropy(), LocalTraining(1, 1, 0.1), None, 0)
    box.expect(asked, Selection(), 0, PROTOTYPES, SAMPLES)
    answer = update(0, values=torch.ones(MASKABLE), always=torch.empty(0), prototypes=None)
    assert box.objection(answer) is None
    box.receive(answer)
    assert box.accepted[0].indices is None
    box.close()


def test_objecting_changes_nothing() -> None:
    box = inbox()
    check: Callable[[Update], str | None] = box.objection
    assert check(update(0)) is None
    assert check(update(0)) is None
    assert box.accepted == []


class TestClasses:
    """The output layer learns each class's rows from the clients that have the class."""

    # entries 0, 3 and 7 of ten are held: the second place is a row of class 0, the third one of class 2
    ROWS = torch.tensor([[1, 2], [0, 2]])

    def box(self, indices: list[int] | None = None, rows: Tensor | None = ROWS, memory: int = 1 << 20) -> Inbox:
        asked = dataclasses.replace(task(0, indices=indices), objective=LabelMasked())
        made = Inbox(memory)
        made.expect(asked, Selection(asked.submodel.indices, class_rows=rows), ALWAYS, PROTOTYPES, SAMPLES)
        return made

    def answer(self, *classes: bool, **changes: Any) -> Update:
        return update(0, **({"classes": torch.tensor(classes), "prototypes": None} | changes))

    @pytest.mark.parametrize("memory", [0, 1 << 20])
    @pytest.mark.parametrize(
        ("classes", "indices", "values"),
        [
            ((True, False, True), [0, 3, 7], [1, 2, 3]),
            ((True, True, False), [0, 3], [1, 2]),
            ((False, True, True), [0, 7], [1, 3]),
            ((False, True, False), [0], [1]),
        ],
    )
    def test_rows_of_classes_that_a_client_does_not_have_do_not_count(
        self, classes: tuple[bool, ...], indices: list[int], values: list[float], memory: int
    ) -> None:
        box = self.box(memory=memory)
        box.receive(self.answer(*classes))
        (merged,) = box.accepted
        assert merged.indices is not None
        assert merged.indices.read(0, len(merged.indices)).tolist() == indices
        assert merged.values.read(0, len(merged.values)).tolist() == values
        assert merged.always.tolist() == [0.5, -0.5]
        box.close()

    def test_of_a_full_model_too(self) -> None:
        box = Inbox(1 << 20)
        part = Submodel(MASKABLE, None, torch.ones(MASKABLE), torch.ones(ALWAYS))
        asked = Task(5, 0, 100, Budget.parse("1"), part, LabelMasked(), LocalTraining(1, 1, 0.1), None, 0)
        box.expect(asked, Selection(class_rows=torch.tensor([[6, 7, 8, 9], [0, 0, 1, 1]])), ALWAYS, PROTOTYPES, SAMPLES)
        box.receive(self.answer(False, True, True, values=torch.arange(10.0)))
        (merged,) = box.accepted
        assert merged.indices is not None
        assert merged.indices.read(0, 8).tolist() == merged.values.read(0, 8).tolist() == [0, 1, 2, 3, 4, 5, 8, 9]
        assert len(merged.indices) == 8

    def test_without_known_rows_all_counts(self) -> None:
        box = self.box(rows=None)
        box.receive(self.answer(False, True, False))
        assert box.accepted[0].values.read(0, 3).tolist() == [1, 2, 3]

    @pytest.mark.parametrize(
        ("classes", "reason"),
        [
            (None, "classes missing or not asked for"),
            (torch.tensor([False, False, False]), "implausible classes"),
            (torch.tensor([True, True]), "implausible classes"),
            (torch.tensor([[True, True, True]]), "implausible classes"),
            (torch.tensor([1, 0, 1]), "implausible classes"),
            (torch.tensor([1.0, 0.0, 1.0]), "implausible classes"),
        ],
    )
    def test_classes_are_not_trusted(self, classes: Tensor | None, reason: str) -> None:
        box = self.box()
        box.receive(self.answer(True, classes=classes))
        assert dict(box.rejected) == {reason: 1}
        assert box.accepted == []

    def test_classes_that_nobody_asked_for_are_rejected(self) -> None:
        told = update(0, classes=torch.tensor([True, True, True]))
        assert inbox().objection(told) == "classes missing or not asked for"
        assert inbox().objection(update(0)) is None


def test_a_smaller_network_tells_where_its_entries_lie() -> None:
    box, places = Inbox(1 << 20), torch.tensor([1, 4])
    box.expect(task(0, aligned=False), Selection(always=places), 6, PROTOTYPES, SAMPLES)
    box.receive(update(0, prototypes=None))
    (merged,) = box.accepted
    assert merged.above == 6
    assert merged.places is not None
    assert merged.places.tolist() == [1, 4]
