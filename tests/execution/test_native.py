"""Which build of the kernels is used, and what happens where there is none."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from framp.cli.doctor import examine
from framp.client.workspace import Workspace
from framp.execution import native
from framp.execution.native import BUILDS, available, kernels, load
from framp.models import SmallCNN


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Look for kernels anew in each test, and after it."""
    kernels.cache_clear()
    yield
    kernels.cache_clear()


def test_where_there_is_a_compiler_there_are_kernels() -> None:
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip("there is no compiler on this machine")
    found = kernels()
    assert found is not None
    assert "plain" in available()
    assert found.name == available()[0]
    assert examine()["kernels"] == found.name


@pytest.mark.parametrize("name", BUILDS)
def test_vectors_are_as_long_as_the_build_says(name: str) -> None:
    found = load(name) if name in available() else None
    if found is None:
        pytest.skip(f"{name} does not run here")
    size = {"avx512": 64, "avx2": 32, "plain": 16}[name]
    assert found.lanes(torch.float32) == size // 4
    assert found.lanes(torch.float64) == size // 8


def test_a_library_of_another_time_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "INTERFACE", native.INTERFACE + 1)
    assert [load(name) for name in available()] == [None] * len(available())
    assert kernels() is None


def test_without_kernels_networks_are_computed_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "LIBRARIES", tmp_path)
    assert available() == []
    assert kernels() is None
    assert examine()["kernels"] is None
    assert Workspace(lambda: SmallCNN(1, 4, 4), 4)._active is None


def test_what_is_no_library_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "LIBRARIES", tmp_path)
    (tmp_path / "kernels-plain.so").write_bytes(b"compiled for another system")
    assert available() == ["plain"]
    assert kernels() is None
