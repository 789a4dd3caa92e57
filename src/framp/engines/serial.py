"""The reference engine: one message after another, in this process."""

from collections.abc import Iterable, Iterator
from typing import final

from framp.client import Client
from framp.engines.allocator import keep_freed_memory
from framp.messages import Message, Reply
from framp.wire import Traffic, Wire


@final
class Serial:
    """Plays every client itself, on one copy of the model."""

    def __init__(self, client: Client, wire: Wire | None = None) -> None:
        keep_freed_memory()
        self._client, self._wire = client, wire or Wire()
        self._wire.layout = client.workspace.full

    @property
    def traffic(self) -> Traffic:
        """Return the bytes that it has carried so far."""
        return self._wire.traffic

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        """Answer messages in their order; a message is let go of before the next is made."""
        return map(self._answer, messages)

    def close(self) -> None:
        """Nothing to let go of."""

    def _answer(self, message: Message) -> Reply:
        message = self._wire.carry(message)
        return self._wire.carry(self._client.answer(message), message)
