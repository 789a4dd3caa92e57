"""What training is predicted to cost a device."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framp.budgets import FULL, Budget
from framp.config import Config
from framp.cost import Cost, Dense, Device, budget_for, cost, masked, parse_bytes
from framp.data.kinds import Images, Nodes
from framp.errors import BudgetError, ConfigError
from framp.layout import ParameterLayout
from framp.messages import LocalTraining, Submodel
from framp.models import GCN, SmallCNN
from framp.stage2_extraction import WidthPrefix
from framp.stage2_extraction.network import Network

MASKABLE, ALWAYS, FORWARD = 414, 28, 81 * 18 + 25 * 72 + 9 * 288 + 32
"""Of SmallCNN(1, 4, 2) for images of 9 pixels a side."""


def architecture() -> SmallCNN:
    return SmallCNN(1, 4, 2)


def device(**values: Any) -> Device:
    known = {"steps": 5, "batch": 8, "rate": 0.1} | {
        key: values.pop(key) for key in ("momentum", "batch") if key in values
    }
    return Device(architecture, Images(1, 9, 9), LocalTraining(**known), **values)


def found(budget: str, **values: Any) -> Cost:
    here = device(**values)
    return cost(masked(here, Budget.parse(budget)), here)


def test_a_mask_by_hand() -> None:
    """Dense computation takes the same time whatever the mask."""
    quarter, whole = found("1/4"), found("1")
    assert (quarter.parameters, whole.parameters) == (103 + ALWAYS, MASKABLE + ALWAYS)
    assert quarter.multiply_adds == whole.multiply_adds == 3 * 5 * 8 * FORWARD
    vector = 4 * (MASKABLE + ALWAYS)
    assert [quarter.terms[name] for name in ("weights", "gradient", "momentum", "mask")] == [vector, vector, 0, vector]
    assert quarter.terms["task"] == 4 * (103 + ALWAYS) + 4 * 103
    assert (whole.terms["mask"], whole.terms["task"]) == (0, vector)
    assert found("1/4", momentum=0.9).terms["momentum"] == vector
    assert quarter.peak_bytes == sum(quarter.terms.values())


def test_a_slice_is_a_smaller_network() -> None:
    here = device()
    layout = ParameterLayout.of(architecture())
    extractor = WidthPrefix.configured(Config(), Network(architecture, layout, here.kind))
    chosen = extractor.select(torch.ones(MASKABLE), Budget.parse("1/3"), 1)
    assert chosen.indices is not None
    assert chosen.always is not None
    values, always = torch.ones(len(chosen.indices)), torch.ones(len(chosen.always))
    own = cost(Submodel(MASKABLE, chosen.indices, values, always, chosen.shapes), here)
    assert own.parameters == len(values) + len(always)
    assert own.terms["weights"] == 4 * own.parameters
    assert own.terms["mask"] == 0
    # one channel in the first layer, two in the second, four in the last
    assert own.multiply_adds == 3 * 5 * 8 * (81 * 9 + 25 * 18 + 9 * 72 + 16)
    assert 2 * own.terms["activations"] == pytest.approx(found("1").terms["activations"], rel=0.1)


def test_activations_grow_with_the_batch() -> None:
    one, two = found("1", batch=32).terms["activations"], found("1", batch=64).terms["activations"]
    assert 1.9 * one < two < 2.1 * one


def test_a_wide_pass_without_gradients_can_be_the_peak() -> None:
    """As over 256 images at once for local prototypes, after training in small batches."""
    assert found("1", widest=8).terms["activations"] == found("1").terms["activations"]
    assert found("1", widest=256).terms["activations"] > 2 * found("1").terms["activations"]


def test_what_training_keeps_alive_by_hand() -> None:
    """Linear layers 3 → 4 → 2 of 6 nodes: one matrix after the other, in float32."""
    here = Device(lambda: GCN(3, 2, 2, 4), Nodes(3), LocalTraining(1, 32, 0.1), nodes=6)
    alive = here.footprint(None).training(6)
    steps, hidden, logits = 4 * 6 * 3, 4 * 6 * 4, 4 * 6 * 2
    assert steps + 2 * hidden + logits < alive < 3 * (steps + 2 * hidden + logits) + 500
    assert cost(masked(here, FULL), here).multiply_adds == 3 * 6 * (3 * 4 + 4 * 2)


def test_without_gaps_there_is_no_term_of_them() -> None:
    here = device()
    terms = Dense(gaps=0.0).terms(masked(here, FULL), here)
    assert terms["gaps"] == 0
    assert found("1").terms["gaps"] == int(0.6 * terms["activations"])


class Proportional:
    """An executor that keeps nothing but the active entries."""

    def multiply_adds(self, submodel: Submodel, device: Device) -> int:
        return submodel.values.numel()

    def terms(self, submodel: Submodel, device: Device) -> dict[str, int]:
        return {"entries": 28 * submodel.values.numel()}


@given(st.integers(28 * 2, 28 * MASKABLE + 100))
def test_the_largest_budget_that_fits(memory: int) -> None:
    here, executor = DEVICE, Proportional()
    budget = budget_for(memory, here, executor)
    assert cost(masked(here, budget), here, executor).peak_bytes <= memory
    larger = Budget.parse(str(budget.fraction + Budget.parse("1/256").fraction)) if budget.fraction < 1 else None
    if larger is not None:
        assert cost(masked(here, larger), here, executor).peak_bytes > memory


DEVICE = device()


def test_a_full_network_needs_no_mask() -> None:
    """It takes less than a mask of nearly all entries, so a device that can hold it gets it."""
    here = device()
    room = cost(masked(here, FULL), here).peak_bytes
    assert budget_for(room, here) == FULL
    assert cost(masked(here, Budget.parse("255/256")), here).peak_bytes > room


def test_too_little_memory_is_an_error() -> None:
    with pytest.raises(
        BudgetError, match=r"2kB hold no submodel: training the smallest, 1/256, takes \d+ bytes; lower"
    ):
        budget_for("2kB", device())


def test_amounts_of_memory() -> None:
    assert [parse_bytes(text) for text in ("64MB", "1.5 GiB", ".5kb", "7", " 2 TiB ")] == [
        64_000_000, 3 << 29, 500, 7, 2 << 40
    ]  # fmt: skip
    assert parse_bytes(12) == 12
    for text in ("64 M", "much", "-1MB", "", "1e3MB"):
        with pytest.raises(ConfigError, match="is no amount of memory; write a number with a unit, such as 64MB"):
            parse_bytes(text)
