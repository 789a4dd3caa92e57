import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from framp.budgets import Budget
from framp.errors import CheckpointError, RunFolderError
from framp.runs import checkpoint, enrolled, tensors
from framp.server import Registry

IDENTITY = {"config_sha256": "c", "partition_sha256": "p", "data_sha256": "d"}


def state(number: float) -> dict[str, torch.Tensor]:
    whole = torch.arange(6, dtype=torch.float32).view(2, 3) + number
    return {"weights": whole.T, "counts": torch.tensor([1, 2]), "empty": torch.zeros(0, 3)}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved = checkpoint.save(tmp_path, 10, state(0.5), IDENTITY)
    assert saved.path == tmp_path / "checkpoint" / "round-000010"
    assert sorted(os.listdir(saved.path)) == ["meta.json", "state.safetensors"]
    found = checkpoint.latest(tmp_path)
    assert found == saved
    assert found is not None
    loaded, meta = checkpoint.load(found)
    assert same(loaded, state(0.5))
    size = (saved.path / "state.safetensors").stat().st_size
    assert {**meta, "sha256": ""} == {"schema": 1, "round": 10, "bytes": size, "sha256": "", **IDENTITY}


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    for round in (2, 4, 6, 1000000):
        checkpoint.save(tmp_path, round, state(round), IDENTITY)
    assert sorted(os.listdir(tmp_path / "checkpoint")) == ["round-000006", "round-1000000"]
    assert [found.round for found in checkpoint.available(tmp_path)] == [6, 1000000]
    assert same(checkpoint.load(checkpoint.find(tmp_path, 6))[0], state(6))
    with pytest.raises(CheckpointError, match=r"no checkpoint of round 7; there are: 6, 1000000 \(0 starts anew\)$"):
        checkpoint.find(tmp_path, 7)
    checkpoint.discard_after(tmp_path, 6)
    assert os.listdir(tmp_path / "checkpoint") == ["round-000006"]


def truncate(path: Path) -> str:
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    return f"is truncated: {len(data) - 5} of {len(data)} bytes"


def flip(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return "does not match its checksum"


def lengthen(path: Path) -> str:
    data = path.read_bytes()
    path.write_bytes(data + b"x")
    return f"has {len(data) + 1} bytes instead of {len(data)}"


def delete(path: Path) -> str:
    path.unlink()
    return "is missing"


@pytest.mark.parametrize("damage", [truncate, flip, lengthen, delete])
def test_a_damaged_checkpoint_is_named_and_the_previous_offered(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    checkpoint.save(tmp_path, 2, state(2), IDENTITY)
    newest = checkpoint.save(tmp_path, 4, state(4), IDENTITY)
    wrong = damage(newest.path / "state.safetensors")
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(newest)
    assert str(caught.value) == (
        f"{newest.path}/state.safetensors {wrong}; "
        f"go back to the one before it with `framp resume {tmp_path} --checkpoint 2`"
    )
    previous = checkpoint.find(tmp_path, 2)
    assert same(checkpoint.load(previous)[0], state(2))
    flip(previous.path / "state.safetensors")
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(newest)
    assert str(caught.value) == (
        f"{newest.path}/state.safetensors {wrong}; "
        f"no intact one is left, start anew with `framp resume {tmp_path} --checkpoint 0`"
    )


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (None, "is missing"),
        ("{", "is damaged: it is no valid JSON"),
        ("[]", "is damaged: it lacks entries"),
        ('{"schema": 1}', "is damaged: it lacks entries"),
        (
            '{"schema": 2, "round": 2, "bytes": 1, "sha256": "", "config_sha256": "", "partition_sha256": ""}',
            "has schema 2, but this version of FRAMP reads 1",
        ),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, content: str | None, wrong: str) -> None:
    saved = checkpoint.save(tmp_path, 2, state(2), IDENTITY)
    meta = saved.path / "meta.json"
    if content is None:
        meta.unlink()
    else:
        meta.write_text(content)
    with pytest.raises(CheckpointError, match="^" + re.escape(f"{meta} {wrong}; no intact one is left")):
        checkpoint.load(saved)


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_full_disk_leaves_the_older_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, no_space: Callable[..., Any]
) -> None:
    old = [checkpoint.save(tmp_path, round, state(round), IDENTITY) for round in (2, 4)]
    monkeypatch.setattr(os, function, no_space)
    with pytest.raises(RunFolderError) as caught:
        checkpoint.save(tmp_path, 6, state(6), IDENTITY)
    assert str(caught.value).startswith("no space left on the disk of ")
    assert str(caught.value).endswith(f": free some and resume with `framp resume {tmp_path}`")
    assert checkpoint.available(tmp_path) == old
    assert all(same(checkpoint.load(one)[0], state(one.round)) for one in old)
    assert len(os.listdir(tmp_path / "checkpoint")) == 2


def test_a_disk_that_is_full_for_the_tensors_is_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(tensors, "save_file", full)
    with pytest.raises(RunFolderError) as caught:
        checkpoint.save(tmp_path, 6, state(6), IDENTITY)
    assert str(caught.value) == (
        f"no space left on the disk of {tmp_path}/checkpoint/round-000006: "
        f"free some and resume with `framp resume {tmp_path}`"
    )
    assert os.listdir(tmp_path / "checkpoint") == []


def test_leftovers_are_no_checkpoints_and_go_away(tmp_path: Path) -> None:
    saved = checkpoint.save(tmp_path, 2, state(2), IDENTITY)
    leftover = saved.path.with_name(".round-000004.0123.partial")
    leftover.mkdir()
    (leftover / "state.safetensors").write_bytes(b"half")
    assert checkpoint.latest(tmp_path) == saved
    checkpoint.clean(tmp_path)
    assert not leftover.exists()
    leftover.mkdir()
    checkpoint.save(tmp_path, 6, state(6), IDENTITY)
    assert not leftover.exists()


BUDGETS = [Budget.parse("1/4"), Budget.parse("1")]


@pytest.mark.parametrize("dimensions", [0, 128])
def test_the_registry_comes_back(tmp_path: Path, dimensions: int) -> None:
    registry = Registry(
        tuple(BUDGETS), np.array([0, 0, 1], dtype=np.int16), np.array([7, 8, 9]), torch.rand(3, dimensions)
    )
    assert not enrolled.has_registry(tmp_path)
    enrolled.save_registry(tmp_path, registry)
    assert enrolled.has_registry(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["registry.json", "registry.safetensors"]
    loaded = enrolled.load_registry(tmp_path, BUDGETS)
    assert loaded.budgets == registry.budgets
    for ours, theirs in ((loaded.group, registry.group), (loaded.samples, registry.samples)):
        assert ours.dtype == theirs.dtype
        assert ours.tolist() == theirs.tolist()
    assert torch.equal(loaded.descriptors, registry.descriptors)
    assert json.loads((tmp_path / "registry.json").read_text())["clients"] == 3
    wrong = flip(tmp_path / "registry.safetensors")
    with pytest.raises(CheckpointError, match=f"registry.safetensors {wrong}; delete .*registry.json and resume again"):
        enrolled.load_registry(tmp_path, BUDGETS)
