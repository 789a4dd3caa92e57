"""Worker processes on one machine: one thread, one copy of the model and one memory map of the data each.

Replies are the same bits as the serial engine's, in another order. At most one message a worker, and one that waits,
is under way: full models do not pile up.
"""

import contextlib
import multiprocessing
import pickle
import signal as signals
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import final

import torch

from framp.client import Client
from framp.client.client import ClientData
from framp.errors import FrampError, ModelError
from framp.messages import Message, Reply
from framp.models import Architecture

_DIED = "a worker process died, probably for want of memory; lower engine.workers, then resume the run"


@final
class Processes:
    """Hands each message to the next free worker."""

    def __init__(self, architecture: Architecture, data: ClientData, workers: int) -> None:
        try:
            luggage = pickle.dumps((architecture, data))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ModelError(
                f"the model cannot be sent to worker processes ({error}); "
                "define its class or function at the top of a module, or use the serial engine"
            ) from None
        context = multiprocessing.get_context("spawn")
        self._workers: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, luggage), daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, ours))

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        """Answer messages as workers become free; the stream's order decides who is served first."""
        stream = iter(messages)
        busy: set[Connection] = set()
        try:
            for _, connection in self._workers:
                if not _send_next(stream, connection, busy):
                    break
            while busy:
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    busy.discard(ready)
                    reply = _receive(ready)
                    _send_next(stream, ready, busy)
                    yield reply
        finally:
            _drain(busy)

    def close(self) -> None:
        """End the workers."""
        for process, connection in self._workers:
            connection.close()
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
        self._workers = []


def _send_next(stream: Iterator[Message], connection: Connection, busy: set[Connection]) -> bool:
    message = next(stream, None)
    if message is None:
        return False
    try:
        connection.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
    except OSError:
        raise FrampError(_DIED) from None
    busy.add(connection)
    return True


def _drain(busy: set[Connection]) -> None:
    """Wait for the replies that nobody will read, so that the next exchange gets its own."""
    for connection in busy:
        with contextlib.suppress(EOFError, OSError):
            connection.recv_bytes()


def _receive(connection: Connection) -> Reply:
    try:
        reply = pickle.loads(connection.recv_bytes())
    except (EOFError, OSError):
        raise FrampError(_DIED) from None
    if isinstance(reply, BaseException):
        raise reply
    answer: Reply = reply
    return answer


def _work(connection: Connection, luggage: bytes) -> None:
    for signal in (signals.SIGINT, signals.SIGTERM):  # a terminal sends them to all; the server decides when to end
        signals.signal(signal, signals.SIG_IGN)
    torch.set_num_threads(1)
    architecture, data = pickle.loads(luggage)
    client = Client(architecture, data)
    while True:
        try:
            message = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            reply: object = client.answer(message)
        except Exception as error:
            error.add_note(f"while a worker answered {type(message).__name__} of client {message.client}")
            reply = error if _travels(error) else FrampError(f"{type(error).__name__}: {error}")
        connection.send_bytes(pickle.dumps(reply, protocol=pickle.HIGHEST_PROTOCOL))


def _travels(error: Exception) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True
