import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framp.errors import RunFolderError
from framp.runs import atomic


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    atomic.write_json(path, {"a": [1, 0.5, "é"]})
    assert path.read_text(encoding="utf-8") == '{\n "a": [\n  1,\n  0.5,\n  "é"\n ]\n}\n'
    atomic.write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["results.json"]


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, no_space: Callable[..., Any]
) -> None:
    path = tmp_path / "results.json"
    path.write_text("old")
    monkeypatch.setattr(os, function, no_space)
    with pytest.raises(RunFolderError) as caught:
        atomic.write_text(path, "new")
    expected = f"no space left on the disk of {path}: free some and resume with `framp resume {tmp_path}`"
    assert str(caught.value) == expected
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["results.json"]


def test_an_interrupt_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "results.json"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic.write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["results.json"]


def test_what_else_the_disk_refuses_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "file"
    with pytest.raises(RunFolderError, match=r"^cannot write .*/missing/file: No such file or directory; mend that"):
        atomic.write_text(path, "text")


def test_a_number_that_json_cannot_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        atomic.write_json(tmp_path / "file", float("nan"))
    assert os.listdir(tmp_path) == []


def test_a_folder_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_space: Callable[..., Any]
) -> None:
    path = tmp_path / "folder"
    with atomic.replacing_folder(path, tmp_path) as temporary:
        (temporary / "file").write_text("old")
        assert not path.exists()

    def second() -> None:
        with atomic.replacing_folder(path, tmp_path) as temporary:
            (temporary / "file").write_text("new")

    replace = os.replace
    for failing in (1, 2):  # moving the old one aside, moving the new one in
        calls = iter(range(1, 10))
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", lambda *a, c=calls, f=failing: no_space() if next(c) == f else replace(*a))
            with pytest.raises(RunFolderError, match="no space left"):
                second()
        assert (path / "file").read_text() == "old"
        assert os.listdir(tmp_path) == ["folder"]
    second()
    assert (path / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["folder"]


def test_only_own_leftovers_are_removed(tmp_path: Path) -> None:
    for name in (".hidden", "x.partial", ".x.partial"):
        (tmp_path / name).touch()
    atomic.temporary_name(tmp_path / "folder").mkdir()
    atomic.remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "x.partial"]
    atomic.remove_leftovers(tmp_path / "missing")
