import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framp.budgets import Budget
from framp.errors import BudgetError
from framp.messages import LocalTraining, Score, Submodel, Task
from framp.stage3_objective import CrossEntropy


def submodel(maskable: int, indices: list[int] | None, always: int = 2) -> Submodel:
    held = maskable if indices is None else len(indices)
    return Submodel(
        maskable,
        None if indices is None else torch.tensor(indices, dtype=torch.int32),
        torch.arange(1.0, held + 1),
        -torch.arange(1.0, always + 1),
    )


def task(part: Submodel, budget: str, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "round": 3,
        "client": 7,
        "token": 1,
        "budget": Budget.parse(budget),
        "submodel": part,
        "objective": CrossEntropy(),
        "training": LocalTraining(1, 1, 0.1),
        "prototypes": None,
        "seed": 0,
    }
    return Task(**(values | changes))


def test_a_submodel_fills_a_vector_and_leaves_exact_zeros() -> None:
    vector = torch.full((8,), float("nan"))
    submodel(6, [1, 4, 5]).fill(vector)
    assert vector.tolist() == [0, 1, 0, 0, 2, 3, -1, -2]
    submodel(6, None).fill(vector)
    assert vector.tolist() == [1, 2, 3, 4, 5, 6, -1, -2]
    submodel(6, []).fill(vector)
    assert vector.tolist() == [0, 0, 0, 0, 0, 0, -1, -2]


def test_a_mask_says_what_may_change() -> None:
    mask = submodel(6, [1, 4, 5]).mask()
    assert mask is not None
    assert mask.tolist() == [0, 1, 0, 0, 1, 1, 1, 1]
    assert mask.dtype == torch.float32
    assert submodel(6, None).mask() is None
    double = Submodel(3, torch.tensor([0], dtype=torch.int32), torch.ones(1).double(), torch.ones(1).double()).mask()
    assert double is not None
    assert double.dtype == torch.float64


@given(st.integers(1, 40), st.data())
def test_filling_and_masking_agree(maskable: int, data: st.DataObject) -> None:
    indices = sorted(data.draw(st.sets(st.integers(0, maskable - 1))))
    part = submodel(maskable, indices)
    vector = torch.full((maskable + 2,), 9.0)
    part.fill(vector)
    mask = part.mask()
    assert mask is not None
    assert torch.equal(vector != 0, mask == 1)
    assert torch.equal(vector[part.indices], part.values)


def test_a_task_over_its_budget_cannot_be_built() -> None:
    assert task(submodel(100, list(range(6))), "1/16").submodel.values.numel() == 6
    with pytest.raises(BudgetError) as caught:
        task(submodel(100, list(range(7))), "1/16")
    assert str(caught.value) == (
        "client 7 in round 3: 7 parameters exceed its budget 1/16 of 6; the extractor must select at most 6"
    )
    with pytest.raises(BudgetError):
        task(submodel(100, None), "0.99")
    assert task(submodel(100, None), "1").submodel.indices is None


@given(st.integers(1, 60), st.integers(0, 60), st.fractions(min_value=0, max_value=1).filter(bool))
def test_a_task_holds_its_budget_whatever_it_is(maskable: int, held: int, fraction: Any) -> None:
    part = submodel(maskable, list(range(min(held, maskable))))
    if part.values.numel() <= fraction * maskable:
        assert task(part, str(fraction)).submodel is part
    else:
        with pytest.raises(BudgetError):
            task(part, str(fraction))


def test_what_always_travels_is_not_counted() -> None:
    assert task(submodel(4, [0], always=50), "1/4").submodel.always.numel() == 50


def test_messages_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        task(submodel(4, [0]), "1").client = 2  # type: ignore[misc]


def test_an_accuracy_is_a_share_of_right_answers() -> None:
    assert Score(("x",), 3, 4).accuracy == 0.75
    assert Score(("x",), 0, 0).accuracy == 0.0
