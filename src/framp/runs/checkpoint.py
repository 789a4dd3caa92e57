"""Checkpoints: the server's state after a round, in a folder that appears whole or not at all.

`checkpoint/round-000010/` holds `state.safetensors` and `meta.json`. It is written under a temporary name, brought to
the disk and renamed; an older checkpoint is removed only after the newer one stands. The last two are kept.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from framp.errors import CheckpointError
from framp.runs import tensors
from framp.runs.atomic import as_json, remove_leftovers, replacing_folder, temporary_name

SCHEMA = 1
KEPT = 2
FOLDER = "checkpoint"
STATE, META = "state.safetensors", "meta.json"
_NAME = re.compile(r"round-(\d{6,})")
_REQUIRED = ("round", "bytes", "sha256", "config_sha256", "partition_sha256")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk, not yet read."""

    path: Path
    round: int

    @property
    def run(self) -> Path:
        """The run folder that it lies in."""
        return self.path.parent.parent


def save(folder: Path, round: int, state: dict[str, Tensor], identity: dict[str, str]) -> Checkpoint:
    """Write the state after a round into a run folder; `identity` names the configuration and the partition."""
    path = Path(folder) / FOLDER / f"round-{round:06d}"
    with replacing_folder(path, Path(folder)) as temporary:
        written = tensors.write_tensors(temporary / STATE, state)
        meta = as_json({"schema": SCHEMA, "round": round, **written, **identity})
        (temporary / META).write_text(meta, encoding="utf-8")
    for old in available(folder)[:-KEPT]:
        _remove(old)
    return Checkpoint(path, round)


def available(folder: Path) -> list[Checkpoint]:
    """Return a run's checkpoints, oldest first, unread."""
    parent = Path(folder) / FOLDER
    if not parent.is_dir():
        return []
    found = [Checkpoint(path, int(match[1])) for path in parent.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted(found, key=lambda checkpoint: checkpoint.round)


def latest(folder: Path) -> Checkpoint | None:
    """Return a run's newest checkpoint."""
    return next(reversed(available(folder)), None)


def find(folder: Path, round: int) -> Checkpoint:
    """Return the checkpoint of a certain round."""
    known = available(folder)
    for checkpoint in known:
        if checkpoint.round == round:
            return checkpoint
    rounds = ", ".join(str(checkpoint.round) for checkpoint in known) or "none"
    raise CheckpointError(f"{folder} has no checkpoint of round {round}; there are: {rounds} (0 starts anew)")


def load(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint after checking it; a damaged one is an error that names what to use instead."""
    try:
        meta = tensors.read_meta(checkpoint.path / META, SCHEMA, _REQUIRED)
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path / META} {error}; {_instead(checkpoint)}") from None
    try:
        return tensors.read_tensors(checkpoint.path / STATE, meta["bytes"], meta["sha256"]), meta
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path / STATE} {error}; {_instead(checkpoint)}") from None


def clean(folder: Path) -> None:
    """Remove what interrupted writes left."""
    remove_leftovers(Path(folder) / FOLDER)


def discard_after(folder: Path, round: int) -> None:
    """Remove the checkpoints of later rounds: the run goes on from this one."""
    for checkpoint in reversed(available(folder)):
        if checkpoint.round > round:
            _remove(checkpoint)


def _remove(checkpoint: Checkpoint) -> None:
    # renamed first: a checkpoint that is half removed must not look like one
    os.replace(checkpoint.path, temporary_name(checkpoint.path))
    remove_leftovers(checkpoint.path.parent)


def _intact(checkpoint: Checkpoint) -> bool:
    try:
        meta = tensors.read_meta(checkpoint.path / META, SCHEMA, _REQUIRED)
    except ValueError:
        return False
    return tensors.what_is_wrong(checkpoint.path / STATE, meta["bytes"], meta["sha256"]) is None


def _instead(damaged: Checkpoint) -> str:
    for other in reversed(available(damaged.run)):
        if other.round < damaged.round and _intact(other):
            return f"go back to the one before it with `framp resume {damaged.run} --checkpoint {other.round}`"
    return f"no intact one is left, start anew with `framp resume {damaged.run} --checkpoint 0`"
