"""The run folder: what lies in it, who may use it, and what may not be overwritten."""

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from framp.config import Config
from framp.errors import FrampError, RunFolderError
from framp.execution import kernels
from framp.federation import Federation
from framp.runs import checkpoint, enrolled, results
from framp.runs.atomic import explained, is_leftover, remove_leftovers, synchronise, write_json, write_text
from framp.server import Registry

CONFIG = "config.toml"
PARTITION = "partition.json"
EVENTS = "metrics.jsonl"
TENSORBOARD = "tensorboard"


def status(folder: Path) -> dict[str, Any]:
    """Tell whether a folder's run is finished, unfinished or none, and which round would be resumed from."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        return {"state": "none", "round": 0, "rounds": 0}
    rounds = Config.from_toml(folder / CONFIG).rounds
    if (folder / results.NAME).is_file():
        return {"state": "finished", "round": rounds, "rounds": rounds}
    newest = checkpoint.latest(folder)
    return {"state": "unfinished", "round": newest.round if newest else 0, "rounds": rounds}


def refuse_used(folder: Path) -> None:
    """Raise unless a new run may be started in a folder: it is not there yet, or empty."""
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file; choose another --out")
    if (folder / CONFIG).exists():
        raise RunFolderError(f"{folder} holds {_described(folder)}")
    if folder.is_dir() and any(not is_leftover(path) for path in folder.iterdir()):
        raise RunFolderError(f"{folder} holds files that belong to no run; choose another --out or empty it")


def existing_state(folder: Path) -> str:
    """Return "finished" or "unfinished"; a folder without a run is an error."""
    state: str = status(folder)["state"]
    if state == "none":
        raise RunFolderError(f"there is no run in {folder}; start one with `framp run --out {folder}`")
    return state


@contextlib.contextmanager
def created(folder: Path, config: Config) -> Iterator[None]:
    """Make a run folder that holds its configuration, from which everything else can be made again, and claim it."""
    existed = folder.exists()
    with explained(folder, "start again"):
        folder.mkdir(parents=True, exist_ok=True)
        synchronise(folder.parent)
    with claimed(folder):
        refuse_used(folder)  # somebody may have been faster
        try:
            remove_leftovers(folder)
            write_text(folder / CONFIG, config.to_toml(), "start again")
        except BaseException:
            if not existed:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise
        yield


def describe(folder: Path, federation: Federation) -> None:
    """Write down who holds what and who has enrolled, where that is not written yet."""
    if not (folder / PARTITION).exists():
        write_json(folder / PARTITION, federation.data.partition.to_dict())
    if not enrolled.has_registry(folder):
        enrolled.save_registry(folder, federation.registry)


def stored_registry(folder: Path, config: Config) -> Registry | None:
    """Return the registry of the run's start, None where it was interrupted before that was written."""
    return enrolled.load_registry(folder, config.budgets) if enrolled.has_registry(folder) else None


def stored_partition(folder: Path) -> str | None:
    """Return the hash of who held what at a run's start, None where it was interrupted before that was written."""
    path = folder / PARTITION
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        raise RunFolderError(f"{path} is damaged; delete it and run the same command again") from None


def stored_data(folder: Path) -> str | None:
    """Return the hash of the data at a run's start, None where its log does not begin with it."""
    try:
        with (folder / EVENTS).open("rb") as file:
            return str(json.loads(file.readline())["data_sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def refuse_other_data(folder: Path, partition_sha256: str, data_sha256: str) -> None:
    """Raise if clients no longer hold what they held at the run's start."""
    if stored_data(folder) not in (None, data_sha256):
        raise RunFolderError(
            f"the data have changed since the run in {folder} began; restore them, or start anew in another folder"
        )
    known = stored_partition(folder)
    if known is not None and known != partition_sha256:
        raise RunFolderError(
            f"the data have changed since the run in {folder} began: clients hold other samples than "
            f"{folder / PARTITION} says; restore the data, or start anew in another folder"
        )


def identity(federation: Federation) -> dict[str, str]:
    """Return the hashes of all that a state depends on."""
    return {
        "config_sha256": federation.config.sha256(),
        "partition_sha256": federation.data.partition.sha256,
        "data_sha256": federation.data.dataset.sha256,
    }


def start_event(federation: Federation) -> dict[str, Any]:
    """Say what is run, on what, by which versions."""
    config = federation.config
    return {
        "event": "start",
        "recipe": config.recipe,
        "seed": config.seed,
        "rounds": config.rounds,
        "clients": config.partition.clients,
        **identity(federation),
        "model": {"name": config.model.name, "maskable": federation.server.layout.maskable},
        "held": {budget.name: federation.server.held(budget) for budget in federation.registry.budgets},
        "versions": {package: _version(package) for package in ("framp", "torch", "numpy", "safetensors")},
        "kernels": found.name if (found := kernels()) else None,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other processes from running in the same folder; the claim ends with this process, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(f"another process is at work in {folder}; wait for it or end it") from None
        except OSError:
            pass  # some network disks know no locks; then there is no such help
        yield
    finally:
        os.close(descriptor)


def _described(folder: Path) -> str:
    try:
        config, found = Config.from_toml(folder / CONFIG), status(folder)
    except FrampError:
        return f"a run whose {CONFIG} cannot be read; choose another --out or mend that file"
    return (
        f"a run of {config.recipe}, seed {config.seed}, {found['state']} at round {found['round']} of {config.rounds}; "
        f"choose another --out or `framp resume {folder}`"
    )
