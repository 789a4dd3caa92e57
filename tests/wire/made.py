"""Small messages of every kind, and what to compare them by."""

import dataclasses
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from framp import rng
from framp.budgets import Budget
from framp.layout import Entry, ParameterLayout
from framp.messages import (
    Describe,
    Description,
    Exam,
    ExtractorTraining,
    LocalTraining,
    Manner,
    Message,
    Prototypes,
    Reply,
    Score,
    Submodel,
    Task,
    Update,
)
from framp.stage3_objective import Aligned, CrossEntropy, ExitDistillation, LabelMasked, ThresholdGradient
from framp.wire.message import HEADER

OBJECTIVES = [
    Aligned(0.2, "head", "sum"),
    CrossEntropy(),
    ExitDistillation(0.05, 3.0, 7, as_in_code=True, distils=False),
    LabelMasked(),
    ThresholdGradient(),
]


def draw(purpose: str) -> np.random.Generator:
    return rng.stream(0, rng.NOBODY, rng.NOBODY, purpose)


def layout(*shapes: tuple[int, ...], always: tuple[int, ...] = (3,), dtype: torch.dtype = torch.float32) -> Any:
    """A layout of some maskable tensors and one that always travels."""
    entries, start = [], 0
    for number, shape in enumerate((*shapes, always)):
        entries.append(Entry(f"t{number}", shape, start))
        start = entries[-1].stop
    return ParameterLayout(tuple(entries), entries[-1].start, start, dtype)


def floats(count: int, purpose: str = "values", dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.from_numpy(draw(purpose).standard_normal(count)).to(dtype)


def mask(maskable: int, held: Any, always: int = 3, dtype: torch.dtype = torch.float32) -> Submodel:
    indices = torch.tensor(np.asarray(held), dtype=torch.int32)
    return Submodel(maskable, indices, floats(len(indices), dtype=dtype), floats(always, "always", dtype))


def full(maskable: int, always: int = 3, dtype: torch.dtype = torch.float32) -> Submodel:
    return Submodel(maskable, None, floats(maskable, dtype=dtype), floats(always, "always", dtype))


def narrow() -> Submodel:
    """A smaller network: 2 of 4 channels of a 4x3 and of a 2x4 tensor, another one gone, 2 of 3 that always travel."""
    indices = torch.tensor([0, 1, 2, 6, 7, 8, 12, 14, 16, 18], dtype=torch.int32)
    return Submodel(25, indices, floats(10), floats(2), ((2, 3), (2, 2), None, (2,)))


def prototypes(counts: list[int], width: int = 4, dtype: torch.dtype = torch.float32) -> Prototypes:
    vectors = floats(len(counts) * width, "prototypes", dtype).view(-1, width)
    held = torch.tensor(counts)
    vectors[held == 0] = 0
    return Prototypes(vectors, held)


def task(submodel: Submodel | None = None, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "round": 3,
        "client": 7,
        "token": 2**62 + 12345,
        "budget": Budget("1.0", Fraction(1)),
        "submodel": submodel or mask(100, [0, 3, 17, 18, 99]),
        "objective": CrossEntropy(),
        "training": LocalTraining(10, 32, 0.1, True, 0.9, 5e-4, 1.0),
        "prototypes": None,
        "seed": 2**61 + 99,
    }
    return Task(**(values | changes))


def update(**changes: Any) -> Update:
    values: dict[str, Any] = {
        "round": 3,
        "client": 7,
        "token": 2**62 + 12345,
        "values": floats(5),
        "always": floats(3, "always"),
        "prototypes": prototypes([2, 0, 300]),
        "loss": 0.1234,
        "classes": torch.tensor([True, False, True]),
        "extractor": floats(6, "extractor"),
    }
    return Update(**(values | changes))


def every_kind() -> list[Message | Reply]:
    """Messages of every kind, with everything that they can have and without it."""
    trained = ExtractorTraining(floats(9, "extractor"), 2, 0.01)
    double = mask(50, range(0, 50, 3), dtype=torch.float64)
    long = Budget("0.123456789012345678901234567890", Fraction("0.123456789012345678901234567890"))
    return [
        *(task(objective=objective) for objective in OBJECTIVES),
        task(full(20)),
        task(narrow()),
        task(double, prototypes=prototypes([0, 5, 0, 1], dtype=torch.float64)),
        task(mask(100, [4, 9]), budget=long, extractor=trained, prototypes=prototypes([0, 0])),
        task(mask(10, [], 0)),
        update(),
        update(prototypes=None, classes=None, extractor=None, values=torch.empty(0), always=torch.empty(0)),
        update(values=floats(5, dtype=torch.float64), always=floats(3, dtype=torch.float64), loss=float("nan")),
        Describe(4, 2**62 + 1),
        Describe(4, 0, features=False, extractor=floats(9)),
        Description(4, floats(128), 321),
        Description(4, torch.empty(0), 0),
        Exam(mask(100, [1, 2, 3]), 5, ("local", "5"), Manner(100, own_classes=True)),
        Exam(full(9), None, ("union", "1/64"), Manner(7, static_norm=True)),
        Score(("local", "ü"), 3, 2**40),
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two messages are the same bits; a smaller network's indices do not travel."""
    if isinstance(one, Tensor):
        fits = isinstance(other, Tensor) and one.dtype == other.dtype and one.shape == other.shape
        return fits and one.numpy().tobytes() == other.numpy().tobytes()
    if dataclasses.is_dataclass(one):
        without = {"indices"} if isinstance(one, Submodel) and one.shapes is not None else set()
        names = {field.name for field in dataclasses.fields(one)} - without
        return type(one) is type(other) and all(same(getattr(one, name), getattr(other, name)) for name in names)
    return type(one) is type(other) and repr(one) == repr(other)


def rehashed(data: bytes) -> bytes:
    """Make a message whose body was changed pass the checks of its header."""
    start, body = data[:6] + (len(data) - HEADER).to_bytes(8, "little"), data[HEADER:]
    return start + blake2b(start + body, digest_size=16).digest() + body


def entropy_bytes(held: list[int], lengths: list[int]) -> float:
    """The entropy of index sets whose entries are independent, tensor by tensor."""
    total = 0.0
    for count, length in zip(held, lengths, strict=True):
        share = count / length
        if 0 < share < 1:
            total -= length * (share * np.log2(share) + (1 - share) * np.log2(1 - share)) / 8
    return total
