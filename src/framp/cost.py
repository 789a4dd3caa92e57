"""What a task costs the device: parameters, multiply-adds and bytes, predicted without training.

    parameters     those that the device trains, the ones that always travel included
    multiply_adds  of one local phase: steps · batch · 3 · a forward pass's, for a backward pass takes twice as many
    peak_bytes     what the client's memory grows by at most, the sum of the executor's terms

An executor is a way to train a submodel; its terms say what it keeps in memory and what it computes. `Dense` is the one
that there is: a masked full network, or the smaller dense network of a width slice.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import torch

from framp.budgets import FULL, Budget
from framp.data.kinds import Kind
from framp.errors import BudgetError, ConfigError
from framp.footprint import Footprint
from framp.layout import ParameterLayout, Shapes
from framp.messages import LocalTraining, Submodel
from framp.models import Architecture, blank
from framp.work import Work, work_of


@dataclass(frozen=True)
class Device:
    """What is known of a device's work beside its submodel."""

    architecture: Architecture
    kind: Kind
    training: LocalTraining
    nodes: int = 0
    """Of a client's subgraph, all of which is one batch; images come in batches of `training.batch`."""
    widest: int = 0
    """Samples in the largest batch of a pass without gradients, as for local prototypes (256 at most); 0: none."""

    _footprints: dict[Shapes | None, Footprint] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def batch(self) -> int:
        """Samples in a training batch."""
        return self.nodes or self.training.batch

    @cached_property
    def layout(self) -> ParameterLayout:
        """The full network's layout."""
        return ParameterLayout.of(blank(self.architecture))

    @cached_property
    def work(self) -> Work:
        """What the full network's entries cost."""
        return work_of(blank(self.architecture), self.layout, self.kind)

    def footprint(self, shapes: Shapes | None) -> Footprint:
        """Return what the full network, or the smaller one of some shapes, keeps alive."""
        if shapes not in self._footprints:
            self._footprints[shapes] = Footprint(self.architecture, self.kind, shapes)
        return self._footprints[shapes]


class Executor(Protocol):
    """A way to train a submodel."""

    def multiply_adds(self, submodel: Submodel, device: Device) -> int:
        """Return those of one sample's forward pass."""

    def terms(self, submodel: Submodel, device: Device) -> dict[str, int]:
        """Return what lies in memory at the peak, in bytes by name."""


@dataclass(frozen=True)
class Cost:
    """What a task costs."""

    parameters: int
    multiply_adds: int
    terms: dict[str, int]
    """Bytes by what they are for."""

    @property
    def peak_bytes(self) -> int:
        """The sum of the terms."""
        return sum(self.terms.values())


def cost(submodel: Submodel, device: Device, executor: Executor | None = None) -> Cost:
    """Predict what training a submodel costs a device."""
    executor = executor or Dense()
    training = device.training
    return Cost(
        submodel.values.numel() + submodel.always.numel(),
        3 * training.steps * device.batch * executor.multiply_adds(submodel, device),
        executor.terms(submodel, device),
    )


@dataclass(frozen=True)
class Dense:
    """Dense computation: a full network under a mask, or a smaller one.

    The C library keeps gaps between activations of several sizes, measured at .6 of them (`benchmarks/cost.py`). With
    MALLOC_MMAP_THRESHOLD_=65536 in a device's environment glibc hands all of it back: `gaps` is 0 then.
    """

    gaps: float = 0.6
    """Memory that is free between activations but not given back, as a share of them."""

    def multiply_adds(self, submodel: Submodel, device: Device) -> int:
        """Return those of the full network whatever the mask, or those of the smaller network."""
        return device.work.total if submodel.shapes is None else device.work.of(submodel.indices)

    def terms(self, submodel: Submodel, device: Device) -> dict[str, int]:
        """Return vectors of the network's size, the received submodel, and what a step keeps alive."""
        values = submodel.values.nbytes + submodel.always.nbytes
        vector = submodel.values.element_size() * (submodel.below + submodel.always.numel())
        footprint = device.footprint(submodel.shapes)
        training, use = footprint.training(device.batch), footprint.use(device.widest) if device.widest else 0
        return {
            "weights": vector,
            "gradient": vector,
            "momentum": vector if device.training.momentum > 0 else 0,
            "mask": vector if submodel.mask_indices is not None else 0,
            "task": values + (0 if submodel.indices is None else submodel.indices.nbytes),
            "activations": max(training, use, 2 * values),  # the last: an update's, when training is over
            "gaps": int(self.gaps * (training + use)),  # blocks of another size fill few of those that training left
            "workspace": _LIBRARY + _COPIES * footprint.largest_parameter(),
        }


_LIBRARY, _COPIES = 1 << 20, 3
"""What convolutions take for themselves: compiled code, and copies of a weight and its gradient in their own order."""


def masked(device: Device, budget: Budget) -> Submodel:
    """Return a mask of ⌊γ·d⌋ entries by its shape alone."""
    layout = device.layout
    kept = budget.limit(layout.maskable)
    indices = None if kept == layout.maskable else torch.empty(kept, dtype=torch.int32, device="meta")
    values, above = (
        torch.empty(size, dtype=layout.dtype, device="meta") for size in (kept, layout.size - layout.maskable)
    )
    return Submodel(layout.maskable, indices, values, above)


def budget_for(
    memory: int | str,
    device: Device,
    executor: Executor | None = None,
    submodel: Callable[[Device, Budget], Submodel] = masked,
) -> Budget:
    """Return the largest of the budgets n/256 whose training is predicted to fit some bytes (or "64 MB")."""
    room = parse_bytes(memory)

    def peak(steps: int) -> int:
        budget = Budget.parse(str(Fraction(steps, _STEPS)))
        return cost(submodel(device, budget), device, executor).peak_bytes

    if peak(_STEPS) <= room:
        return FULL
    fitting, over = 0, _STEPS  # a full network needs no mask, so it may take less than one a little smaller
    while over - fitting > 1:
        middle = (fitting + over) // 2
        fitting, over = (middle, over) if peak(middle) <= room else (fitting, middle)
    if not fitting:
        raise BudgetError(
            f"{memory} hold no submodel: training the smallest, 1/{_STEPS}, takes {peak(1)} bytes; "
            "lower training.batch or model.width, or give it more"
        )
    return Budget.parse(str(Fraction(fitting, _STEPS)))


_STEPS = 256
_UNITS = {"": 1, **{f"{prefix}b": 1000**power for power, prefix in enumerate(("", "k", "m", "g", "t"))}}
_UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate(("k", "m", "g", "t"), start=1)}


def parse_bytes(text: int | str) -> int:
    """Read "64MB", "1.5 GiB" or a number of bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*", str(text))
    if found is None or found[2].lower() not in _UNITS:
        raise ConfigError(f"'{text}' is no amount of memory; write a number with a unit, such as 64MB or 1.5GiB")
    return int(Fraction(found[1]) * _UNITS[found[2].lower()])
