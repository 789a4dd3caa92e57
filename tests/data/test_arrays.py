import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framp.data.arrays import open_folder, save_folder, write_folder
from framp.errors import DataError


@dataclass(frozen=True)
class Kept:
    name: str
    sha256: str
    values: np.ndarray


def save(folder: Path, kept: Kept) -> Kept:
    def write(temporary: Path) -> None:
        write_folder(temporary, 3, {"name": kept.name, "sha256": kept.sha256}, {"values": kept.values})

    return save_folder(folder, "collection", kept, write, opened, "ELSEWHERE")


def opened(folder: Path, names: tuple[str, ...] = ("values",), schema: int = 3) -> Kept:
    def build(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Kept:
        return Kept(meta["name"], meta["sha256"], arrays["values"])

    return open_folder(folder, "collection", schema, names, build)


@pytest.mark.parametrize(
    "values",
    [np.arange(6).reshape(2, 3), np.arange(6.0).reshape(2, 3).T, np.zeros(0, np.int32)],
    ids=["rows", "columns", "empty"],
)
def test_arrays_of_any_form_come_back_mapped(tmp_path: Path, values: np.ndarray) -> None:
    found = save(tmp_path / "set", Kept("some", "abc", values))
    assert isinstance(found.values, np.memmap)
    assert (found.values.dtype, found.values.shape) == (values.dtype, values.shape)
    np.testing.assert_array_equal(found.values, values)
    assert not found.values.flags.writeable


def test_the_meta_data_say_the_schema_first_and_the_shapes_last(tmp_path: Path) -> None:
    save(tmp_path / "set", Kept("some", "abc", np.zeros((2, 3))))
    written = (tmp_path / "set" / "meta.json").read_text()
    expected = {"schema": 3, "name": "some", "sha256": "abc", "shapes": {"values": [2, 3]}}
    assert written == json.dumps(expected, indent=1) + "\n"


def test_messages_call_the_content_by_its_kind(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    with pytest.raises(DataError, match=f"there is no collection in {folder}; load it again"):
        opened(folder)
    save(folder, Kept("some", "abc", np.zeros(2)))
    with pytest.raises(DataError, match=f"{folder} holds another collection, some; delete this folder or choose"):
        save(folder, Kept("other", "def", np.zeros(2)))
    with pytest.raises(DataError, match=rf"the collection in {folder} is damaged \(schema 3, expected 4\); delete"):
        opened(folder, schema=4)
    with pytest.raises(DataError, match=r"is damaged \(.*more.npy'\); delete"):
        opened(folder, names=("values", "more"))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write the collection to .*; make room there or .* in ELSEWHERE"):
        save(tmp_path / "file" / "set", Kept("some", "abc", np.zeros(2)))


@pytest.mark.parametrize("meta", ["[]", "7", "{}", '{"schema": 3}', "\\"])
def test_meta_data_of_another_form_are_damage(tmp_path: Path, meta: str) -> None:
    save(tmp_path / "set", Kept("some", "abc", np.zeros(2)))
    (tmp_path / "set" / "meta.json").write_text(meta)
    with pytest.raises(DataError, match=r"is damaged \(.+\); delete this folder and try again"):
        opened(tmp_path / "set")


def test_what_its_reader_refuses_is_damage(tmp_path: Path) -> None:
    save(tmp_path / "set", Kept("some", "abc", np.zeros(2)))

    def refuse(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Kept:
        raise DataError("two\nlines")

    with pytest.raises(DataError, match=r"is damaged \(two lines\); delete"):
        open_folder(tmp_path / "set", "collection", 3, ("values",), refuse)
