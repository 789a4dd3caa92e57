"""Worker processes on one machine: one thread, one copy of the model and one memory map of the data each.

Replies are the same bits as the serial engine's, in another order. At most one message a worker is under way: full
models do not pile up.
"""

import contextlib
import multiprocessing
import pickle
import shutil
import signal as signals
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, final

import torch

from framp.client import Client
from framp.data.clients import ClientData
from framp.engines.allocator import keep_freed_memory
from framp.errors import FrampError, ModelError
from framp.messages import Message, Reply
from framp.models import Architecture
from framp.wire import Traffic, Wire

_PATIENCE = 5.0
_SIGNALS = (signals.SIGINT, signals.SIGTERM)
_READY = "ready"


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    connection: Connection
    ready: bool = False
    busy: bool = False
    """Whether it owes a reply."""


@final
class Processes:
    """Hands each message to the next free worker."""

    def __init__(
        self,
        architecture: Architecture,
        data: ClientData,
        workers: int,
        wire: Wire | None = None,
        active: bool = True,
    ) -> None:
        self.traffic = Traffic()
        """The bytes carried so far; each worker codes what it carries, so that they do it side by side."""
        self._workers: list[_Worker] = []
        scratch = tempfile.mkdtemp(prefix="framp-")
        # also when the engine is forgotten or the interpreter ends, before it waits for its children
        self._end = Finalize(self, _end, (self._workers, scratch), exitpriority=10)
        try:
            self._luggage = pickle.dumps(
                (architecture, data.on_disk(Path(scratch) / "data"), (wire or Wire()).values, active)
            )
        except FrampError:
            self._end()
            raise
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self._end()
            raise ModelError(
                f"the model cannot be sent to worker processes ({error}); "
                "define its class or function at the top of a module, or use the serial engine"
            ) from None
        context = multiprocessing.get_context("spawn")
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            with _signals_held_back():
                process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))

    def exchange(self, messages: Iterable[Message]) -> Iterator[Reply]:
        """Answer messages as workers become free; the stream's order decides who is served first."""
        if not self._workers:
            raise FrampError("the engine was closed; build a new federation")
        self._settle()
        stream = iter(messages)
        for worker in self._workers:
            if not self._send_next(stream, worker):
                break
        while busy := {worker.connection: worker for worker in self._workers if worker.busy}:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker = busy[connection]
                reply = self._receive(worker)
                self._send_next(stream, worker)
                yield reply
                del reply  # its memory is the next message's

    def close(self) -> None:
        """End the workers; what they are busy with is of no use any more."""
        self._end()

    def _send_next(self, stream: Iterator[Message], worker: _Worker) -> bool:
        message = next(stream, None)
        if message is None:
            return False
        if not worker.ready:
            _write(worker, self._luggage)
            _said(_read(worker))
            worker.ready = True
        _write(worker, pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
        worker.busy = True
        return True

    def _receive(self, worker: _Worker) -> Reply:
        worker.busy = False
        reply: Reply
        reply, carried = _said(_read(worker))
        self.traffic.down += carried.down
        self.traffic.up += carried.up
        return reply

    def _settle(self) -> None:
        """Wait for the replies that nobody read because an exchange was broken off, so that the next gets its own."""
        for worker in self._workers:
            if worker.busy:
                with contextlib.suppress(EOFError, OSError):
                    worker.connection.recv_bytes()
                worker.busy = False


def _end(workers: list[_Worker], scratch: str) -> None:
    for worker in workers:
        worker.connection.close()
        if worker.busy or not worker.ready:
            worker.process.kill()
    patience = time.monotonic() + _PATIENCE
    for worker in workers:
        worker.process.join(max(0.0, patience - time.monotonic()))
    for worker in workers:
        worker.process.kill()
        worker.process.join()
    workers.clear()
    shutil.rmtree(scratch, ignore_errors=True)


def _write(worker: _Worker, message: bytes) -> None:
    try:
        worker.connection.send_bytes(message)
    except OSError:
        raise _death(worker) from None


def _read(worker: _Worker) -> bytes:
    try:
        return worker.connection.recv_bytes()
    except (EOFError, OSError):
        raise _death(worker) from None


def _said(data: bytes) -> Any:
    """Return what a worker says, or raise it."""
    found = pickle.loads(data)
    if isinstance(found, BaseException):
        raise found
    return found


def _death(worker: _Worker) -> FrampError:
    worker.process.join(timeout=_PATIENCE)
    code = worker.process.exitcode
    how = f"with exit code {code}" if code is None or code >= 0 else f"by signal {-code}"
    if code == -signals.SIGKILL:
        how += ", probably for want of memory: lower engine.workers"
    if not worker.ready:
        return FrampError(f"a worker process ended {how} before it was ready; what it printed above says why")
    return FrampError(f"a worker process ended {how}; resume the run")


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """Let a process that is started here keep them back as well, until it can ignore them: imports take a while."""
    resource_tracker.ensure_running()  # its start would let them through again
    before = signals.pthread_sigmask(signals.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signals.pthread_sigmask(signals.SIG_SETMASK, before)


def _work(connection: Connection) -> None:
    for signal in _SIGNALS:  # a terminal sends them to all; the server decides when to end
        signals.signal(signal, signals.SIG_IGN)
    torch.set_num_threads(1)
    keep_freed_memory()
    with contextlib.suppress(EOFError, OSError):  # the server has ended
        luggage = connection.recv_bytes()
        try:
            architecture, data, values, active = pickle.loads(luggage)
            client = Client(architecture, data, active)
        except Exception as error:
            error.add_note("while a worker process started")
            _tell(connection, error)
            return
        wire = Wire(values, client.workspace.full)
        _tell(connection, _READY)
        while True:
            message = pickle.loads(connection.recv_bytes())
            try:
                message = wire.carry(message)
                reply = wire.carry(client.answer(message), message)
            except Exception as error:
                error.add_note(f"while a worker answered {type(message).__name__} of client {message.client}")
                _tell(connection, error)
            else:
                _tell(connection, (reply, wire.traffic))
                del reply
            wire.traffic = Traffic()
            del message


def _tell(connection: Connection, what: object) -> None:
    if isinstance(what, Exception) and not _travels(what):
        what = FrampError(f"{type(what).__name__}: {what}")
    connection.send_bytes(pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL))


def _travels(error: Exception) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True
