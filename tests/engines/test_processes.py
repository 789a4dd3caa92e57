import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from framp.budgets import FULL
from framp.client.workspace import Workspace
from framp.data import Dataset, partition
from framp.data.clients import ClientData, ImageClients
from framp.data.kinds import Images
from framp.engines import Processes
from framp.errors import FrampError, ModelError
from framp.federation import Federation
from framp.messages import Describe, Description, LocalTraining, Message, Submodel, Task
from framp.models import Architecture, NamedArchitecture, SmallCNN
from framp.recipes import RECIPES
from framp.stage3_objective import CrossEntropy

MakeConfig = Callable[[dict[str, Any]], Any]
MakeFederation = Callable[..., Federation]


@dataclass(frozen=True)
class Recorded:
    """An architecture that notes in a file which process built it."""

    inner: Architecture
    path: Path

    def __call__(self) -> nn.Module:
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return self.inner()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail instead of hanging."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still waiting after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def data(toy_dataset: Dataset, toy_config: MakeConfig) -> ClientData:
    shards = partition(toy_dataset.train.labels, toy_dataset.test.labels, 4, toy_config({}).partition)
    return ImageClients(toy_dataset, shards)


@pytest.fixture(scope="module")
def architecture(toy_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(
        NamedArchitecture(toy_config({}).model, Images(1, 8, 8), 4), tmp_path_factory.mktemp("built") / "pids"
    )


@pytest.fixture(scope="module")
def engine(architecture: Recorded, data: ClientData) -> Iterator[Processes]:
    """Two workers, for all the tests that leave them alive."""
    with closing(Processes(architecture, data, 2)) as engine:
        yield engine


def described(client: int) -> Message:
    return Describe(client, 0)


def long_task(architecture: Architecture, steps: int = 10**9) -> Task:
    """A task that keeps a worker busy, unless told otherwise for longer than any test."""
    layout = Workspace(architecture, 4).layout
    part = Submodel(layout.maskable, None, torch.zeros(layout.maskable), torch.ones(layout.size - layout.maskable))
    return Task(1, 0, 1, FULL, part, CrossEntropy(), LocalTraining(steps, 8, 0.1), None, 0)


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_worker_processes_give_the_serial_engines_bits(
    recipe: str, toy_federation: MakeFederation, engine: Processes
) -> None:
    serial = toy_federation({"recipe": recipe})
    if RECIPES[recipe].form is None:
        parallel = toy_federation({"recipe": recipe})
        parallel.engine = engine
    else:  # its network is another than the shared workers'
        parallel = toy_federation({"recipe": recipe, "engine.name": "processes", "engine.workers": 2})
    for one, other in zip(serial.train(3), parallel.train(3), strict=True):
        assert (one.accepted, one.loss, one.bytes_up) == (other.accepted, other.loss, other.bytes_up)
        assert serial.server.digest() == parallel.server.digest()
    assert serial.evaluate() == parallel.evaluate()
    if parallel.engine is engine:
        parallel.engine = serial.engine  # the workers go on


def test_workers_share_data_given_as_arrays_by_files_that_go_with_them(
    architecture: Recorded, data: ClientData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert data.dataset.folder is None
    with closing(Processes(architecture, data, 1)) as engine:
        _, carried, *_ = pickle.loads(engine._luggage)
        assert isinstance(carried.dataset.train.images, np.memmap)
        assert carried.dataset.sha256 == data.dataset.sha256
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ModelError, match="cannot be sent to worker processes"):
        Processes(lambda: architecture(), data, 1)
    assert list(tmp_path.iterdir()) == []


def test_every_message_is_answered_once(engine: Processes) -> None:
    asked = [5, 0, 3, 3, 1, 2, 4] * 3
    replies = list(engine.exchange(map(described, asked)))
    assert Counter(reply.client for reply in replies if isinstance(reply, Description)) == Counter(asked)
    assert list(engine.exchange([])) == []
    assert len(list(engine.exchange([described(2)]))) == 1


def test_messages_are_made_when_there_is_room(engine: Processes) -> None:
    made = 0

    def messages() -> Iterator[Message]:
        nonlocal made
        for client in (0, 1, 2, 3, 4, 5):
            made += 1
            yield described(client)

    for received, _ in enumerate(engine.exchange(messages()), start=1):
        assert made <= received + 2  # one a worker


def test_the_clients_error_arrives_with_a_note(engine: Processes) -> None:
    with pytest.raises(IndexError) as caught:
        list(engine.exchange([described(77)]))
    assert caught.value.__notes__ == ["while a worker answered Describe of client 77"]
    (reply,) = engine.exchange([described(1)])
    assert isinstance(reply, Description)
    assert reply.client == 1


def test_a_worker_builds_the_model_once(engine: Processes, architecture: Recorded) -> None:
    list(engine.exchange(map(described, range(6))))
    built = Counter(int(line) for line in architecture.path.read_text().split())
    workers = {worker.process.pid for worker in engine._workers}
    assert {pid: built[pid] for pid in workers if pid is not None} == dict.fromkeys(workers, 1)
    assert set(built) == workers


def test_after_an_error_the_next_exchange_gets_its_own_answers(architecture: Recorded, data: ClientData) -> None:
    with closing(Processes(architecture, data, 2)) as engine, at_most(60):
        list(engine.exchange([described(0), described(1)]))  # both workers are up
        with pytest.raises(IndexError):
            list(engine.exchange([described(77), long_task(architecture.inner, steps=300)]))
        replies = [reply for reply in engine.exchange([described(2), described(3)]) if isinstance(reply, Description)]
        assert sorted(reply.client for reply in replies) == [2, 3]


def test_a_worker_that_is_killed_at_work_is_named(architecture: Recorded, data: ClientData) -> None:
    with closing(Processes(architecture, data, 2)) as engine, at_most(60):
        first, second = (worker.process for worker in engine._workers)
        list(engine.exchange([described(0), described(1)]))  # both workers are up

        def kill() -> None:
            assert first.pid is not None
            os.kill(first.pid, signal.SIGKILL)

        def messages() -> Iterator[Message]:
            yield long_task(architecture.inner)
            threading.Timer(0.2, kill).start()
            yield described(1)

        with pytest.raises(FrampError) as caught:
            list(engine.exchange(messages()))
        assert str(caught.value) == (
            "a worker process ended by signal 9, probably for want of memory: lower engine.workers; resume the run"
        )
        assert second.is_alive()
    second.join(timeout=30)
    assert not second.is_alive()


def test_a_worker_that_was_killed_while_idle_is_named(architecture: Recorded, data: ClientData) -> None:
    with closing(Processes(architecture, data, 1)) as engine, at_most(60):
        process = engine._workers[0].process
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with pytest.raises(FrampError, match="a worker process ended by signal 9"):
            list(engine.exchange([described(0)]))


def test_an_exchange_that_is_broken_off_keeps_nobody_waiting(architecture: Recorded, data: ClientData) -> None:
    with at_most(60):
        engine = Processes(architecture, data, 2)
        list(engine.exchange([described(0), described(1)]))  # both workers are up
        replies = engine.exchange([long_task(architecture.inner), described(1), described(2)])
        next(replies)
        assert isinstance(replies, Generator)
        replies.close()
        started = time.perf_counter()
        engine.close()
        assert time.perf_counter() - started < 4  # a worker at work is not waited for


def test_a_closed_engine_says_so(architecture: Recorded, data: ClientData) -> None:
    engine = Processes(architecture, data, 1)
    engine.close()
    engine.close()
    with pytest.raises(FrampError) as caught:
        list(engine.exchange([described(0)]))
    assert str(caught.value) == "the engine was closed; build a new federation"


@dataclass(frozen=True)
class OnlyHere:
    """An architecture that cannot be built in another process."""

    inner: Architecture
    pid: int

    def __call__(self) -> nn.Module:
        if os.getpid() != self.pid:
            raise FileNotFoundError("weights.bin")
        return self.inner()


def test_what_hinders_a_worker_from_starting_is_told(architecture: Recorded, data: ClientData) -> None:
    with closing(Processes(OnlyHere(architecture.inner, os.getpid()), data, 1)) as engine, at_most(60):
        with pytest.raises(FileNotFoundError, match=r"weights\.bin") as caught:
            list(engine.exchange([described(0)]))
        assert caught.value.__notes__ == ["while a worker process started"]


FORGETFUL = """
from framp import Config, Federation
if __name__ == "__main__":
    settings = {"engine.name": "processes", "engine.workers": 2, "training.steps": 1}
    federation = Federation.from_config(Config().with_values(settings))
    print(federation.play_round().accepted, flush=True)
"""


def test_the_interpreter_ends_although_nobody_closed_the_engine(tmp_path: Path) -> None:
    script = tmp_path / "forgetful.py"
    script.write_text(FORGETFUL)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "10\n"
    assert done.stderr == ""


def test_a_script_that_workers_cannot_import_is_an_error_although_the_luggage_is_large() -> None:
    """A worker imports the main script; one read from standard input has no file, so the worker ends early."""
    done = subprocess.run([sys.executable, "-"], input=FORGETFUL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "a worker process ended with exit code 1 before it was ready" in done.stderr


@pytest.mark.parametrize("architecture", [lambda: SmallCNN(1, 4, 4), type("Local", (SmallCNN,), {})])
def test_a_model_that_cannot_be_sent_is_named(architecture: Architecture, data: ClientData) -> None:
    with pytest.raises(ModelError) as caught:
        Processes(architecture, data, 1)
    assert str(caught.value).startswith("the model cannot be sent to worker processes (")
    assert str(caught.value).endswith(
        "); define its class or function at the top of a module, or use the serial engine"
    )
    assert "\n" not in str(caught.value)


def test_the_configuration_starts_and_ends_workers(toy_federation: MakeFederation) -> None:
    before = set(multiprocessing.active_children())
    with toy_federation({"engine.name": "processes", "engine.workers": 1}) as federation:
        assert isinstance(federation.engine, Processes)
        started = set(multiprocessing.active_children()) - before
        assert len(started) == 1
        federation.play_round()
    for process in started:
        process.join(timeout=30)
    assert not any(process.is_alive() for process in started)
    serial = toy_federation()
    serial.play_round()
    assert serial.server.digest() == federation.server.digest()
