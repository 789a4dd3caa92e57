"""Records of plain fields: their values in the order of the class's fields, checked against its annotations.

An objective travels under its class's name; both sides know the same classes.
"""

import dataclasses
import typing
from fractions import Fraction
from typing import Any, TypeVar

from framp.budgets import Budget
from framp.errors import WireError, unknown
from framp.stage3_objective import OBJECTIVES, Objective
from framp.wire.body import FALSE, INTEGER, REAL, RECORD, TEXT, TRUE, Reader, Writer

Record = TypeVar("Record")

_KINDS = {bool: (FALSE, TRUE), int: (INTEGER,), float: (REAL, INTEGER), str: (TEXT,)}


def write_record(writer: Writer, record: Any) -> None:
    """Add a record's fields."""
    writer.tag(RECORD)
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if not isinstance(value, bool | int | float | str):
            raise WireError(
                f"{type(record).__name__}.{field.name} is {value!r}; fields of records on the wire are plain values"
            )
        writer.plain(value)


def read_record(reader: Reader, kind: type[Record]) -> Record:
    """Take a record of a class."""
    reader.tag(RECORD)
    hints = typing.get_type_hints(kind)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(*(reader.plain(*_KINDS[hints[field.name]]) for field in fields))


def write_objective(writer: Writer, objective: Objective) -> None:
    """Add an objective: its name and its fields."""
    name = type(objective).__name__
    if OBJECTIVES.get(name) is not type(objective):
        told = unknown("objective", name, OBJECTIVES)
        raise WireError(f"{told}; add one of your own to framp.stage3_objective.OBJECTIVES, on both sides")
    writer.plain(name)
    write_record(writer, objective)


def read_objective(reader: Reader) -> Objective:
    """Take an objective."""
    name = reader.plain(TEXT)
    if name not in OBJECTIVES:
        told = unknown("objective", ascii(name[:40])[1:-1], OBJECTIVES)
        raise WireError(f"{told}; both sides need the same version of FRAMP")
    objective: Objective = read_record(reader, OBJECTIVES[name])
    return objective


def write_budget(writer: Writer, budget: Budget) -> None:
    """Add a budget: its name and its exact fraction."""
    writer.plain(budget.name)
    writer.plain(budget.fraction.numerator)
    writer.plain(budget.fraction.denominator)


def read_budget(reader: Reader) -> Budget:
    """Take a budget."""
    name, above, below = reader.plain(TEXT), reader.plain(INTEGER), reader.plain(INTEGER)
    if not 0 < above <= below:
        raise WireError("a budget in the message is outside (0, 1]; send it again")
    return Budget(name, Fraction(above, below))
