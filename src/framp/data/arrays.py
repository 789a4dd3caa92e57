"""A set of named arrays as a folder: one .npy file for each and a meta.json, all or nothing, opened by memory map."""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from framp.errors import DataError

META = "meta.json"


class Saved(Protocol):
    """What is kept in such a folder."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def sha256(self) -> str:
        """Hash of the content."""


Kept = TypeVar("Kept", bound=Saved)
Build = Callable[[dict[str, Any], dict[str, np.ndarray]], Kept]


def open_folder(folder: Path, kind: str, schema: int, names: tuple[str, ...], build: Build[Kept]) -> Kept:
    """Map the arrays `names` into memory and build from meta data and arrays; what fails meanwhile is damage.

    `kind` is what the messages call the content.
    """
    if not folder.is_dir():
        raise DataError(f"there is no {kind} in {folder}; load it again")
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        if meta["schema"] != schema:
            raise ValueError(f"schema {meta['schema']}, expected {schema}")
        arrays = {key: np.load(folder / f"{key}.npy", mmap_mode="r") for key in names}
        for key, array in arrays.items():
            if list(array.shape) != meta["shapes"][key]:
                raise ValueError(f"{key}.npy has shape {list(array.shape)}, expected {meta['shapes'][key]}")
        return build(meta, arrays)
    except (OSError, EOFError, ValueError, KeyError, TypeError, DataError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise damaged(folder, kind, reason) from None


def damaged(folder: Path | None, kind: str, reason: str) -> DataError:
    """Return the error that names a folder whose content is not what was written."""
    return DataError(f"the {kind} in {folder} is damaged ({reason}); delete this folder and try again")


def save_folder(
    folder: Path, kind: str, kept: Kept, write: Callable[[Path], None], opened: Callable[[Path], Kept], elsewhere: str
) -> Kept:
    """Have `write` fill the folder, all or nothing, and return what `opened` finds there.

    If another process wrote the same content meanwhile, its files are used. `elsewhere` is the environment variable
    that leads to another disk, for the message if this one refuses.
    """
    folder = Path(folder).absolute()
    if not folder.exists():
        temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        try:
            temporary.mkdir(parents=True)
            write(temporary)
            os.rename(temporary, folder)
        except OSError as error:
            if not folder.is_dir():
                raise DataError(
                    f"cannot write the {kind} to {folder}: {error.strerror or error}; "
                    f"make room there or name another place in {elsewhere}"
                ) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    saved = opened(folder)
    if saved.sha256 != kept.sha256:
        raise DataError(f"{folder} holds another {kind}, {saved.name}; delete this folder or choose another")
    return saved


def write_folder(folder: Path, schema: int, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays and, beside `meta`, what `open_folder` checks."""
    for key, array in arrays.items():
        _write_array(folder / f"{key}.npy", np.ascontiguousarray(array))
    shapes = {key: list(array.shape) for key, array in arrays.items()}
    text = json.dumps({"schema": schema, **meta, "shapes": shapes}, indent=1)
    (folder / META).write_text(text + "\n", encoding="utf-8")


def _write_array(path: Path, array: np.ndarray) -> None:
    """Write what `np.save` would; its own writing does not say why the disk refuses."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)
