"""The reference engine: one message after another, in this process."""

from collections.abc import Iterable, Iterator
from typing import final

from framp.client import Client
from framp.engines.allocator import keep_freed_memory
from framp.messages import Message, Reply


@final
class Serial:
    """Plays every client itself, on one copy of the model."""

    def __init__(self, client: Client) -> None:
        keep_freed_memory()
        self._client = client

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        """Answer messages in their order; a message is let go of before the next is made."""
        return map(self._client.answer, messages)

    def close(self) -> None:
        """Nothing to let go of."""
