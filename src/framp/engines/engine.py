"""The contract of engines: they carry messages to clients and replies back, and do nothing else."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from framp.messages import Message, Reply
from framp.wire import Traffic


class Engine(Protocol):
    """Carries messages."""

    @property
    def traffic(self) -> Traffic:
        """Return the bytes that it has carried so far."""

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        """Yield one reply a message, in any order; messages are taken from the stream as there is room for them."""

    def close(self) -> None:
        """Let go of processes and connections."""
