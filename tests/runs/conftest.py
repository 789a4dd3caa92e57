import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framp.config import Config
from framp.runs import Outcome, start

VALUES: dict[str, Any] = {
    "partition.clients": 5,
    "federation.participants": 3,
    "federation.budgets": ["1/4", "1"],
    "federation.shares": [0.6, 0.4],
    "model.width": 4,
    "model.norm": "group",
    "training.steps": 2,
    "generation.hidden": 8,
    "rounds": 12,
    "checkpoint.every": 2,
    "evaluation.every": 3,
}


@pytest.fixture(scope="session")
def config() -> Config:
    return Config().with_values(VALUES)


@pytest.fixture(scope="session")
def finished(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The uninterrupted run that all others are held against; nobody may change its folder."""
    return start(config, tmp_path_factory.mktemp("runs") / "uninterrupted")


@pytest.fixture
def stopped(config: Config, tmp_path: Path, stop_after: Callable[[int], Callable[[], bool]]) -> Path:
    """A run stopped after round 5: checkpoints of rounds 4 and 5."""
    assert start(config, tmp_path / "run", should_stop=stop_after(5)).round == 5
    return tmp_path / "run"


@pytest.fixture
def stop_after() -> Callable[[int], Callable[[], bool]]:
    """Make a `should_stop` that says yes when asked for the n-th time."""

    def made(rounds: int) -> Callable[[], bool]:
        asked = iter(range(1, 1000))
        return lambda: next(asked) == rounds

    return made


@pytest.fixture
def no_space() -> Callable[..., Any]:
    """What `os.replace` and the like do on a full disk."""

    def refuse(*arguments: Any, **named: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    return refuse
