"""Carrying messages over the wire, the same way for every engine: a receiver gets what was decoded, and bytes count."""

from dataclasses import dataclass
from typing import Any, TypeVar, final

from framp.layout import ParameterLayout
from framp.messages import Describe, Description, Message, Reply, Submodel, Task, Update
from framp.wire.compression import Compression
from framp.wire.contents import Manners
from framp.wire.message import HEADER, decode, framed, written
from framp.wire.values import LOSSLESS

Carried = TypeVar("Carried", bound=Message | Reply)

_DOWN, _UP = (Task, Describe), (Update, Description)
"""What counts; exams are the simulation's own."""
_WITHIN_A_MACHINE = 1 << 46
"""The limit where both ends are ours."""


@dataclass(eq=False)
class Traffic:
    """Bytes that tasks, updates and what goes with them have taken, down to clients and up from them."""

    down: int = 0
    up: int = 0


@final
class Wire:
    """Encodes and decodes what an engine carries, with values coded as the settings say."""

    def __init__(self, values: str = LOSSLESS, layout: ParameterLayout | None = None) -> None:
        self.values, self.layout, self.traffic = values, layout, Traffic()
        self._compression = Compression()

    def carry(self, message: Carried, answered: Message | None = None) -> Carried:
        """Return what the receiver gets of a message, in this same process; without loss it is only measured."""
        kind = type(message)
        if self.values != LOSSLESS:
            data = framed(kind, self._body(message, answered))
            self._count(kind, len(data))
            return decode(data, kind, limit=_WITHIN_A_MACHINE)
        if kind in _DOWN + _UP:
            self._count(kind, HEADER + sum(map(len, self._body(message, answered))))
        return message

    def _body(self, message: Message | Reply, answered: Message | None) -> list[bytes | memoryview]:
        submodel: Submodel | None = answered.submodel if isinstance(answered, Task) else None
        return written(message, Manners(self.values, self.layout, submodel, None), self._compression)

    def _count(self, kind: type[Any], size: int) -> None:
        if kind in _DOWN:
            self.traffic.down += size
        elif kind in _UP:
            self.traffic.up += size
