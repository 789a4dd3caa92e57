"""Files that are either the old one or the new one, whole, whatever happens while they are written."""

import contextlib
import errno
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from framp.errors import RunFolderError

PARTIAL = ".partial"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_bytes(path: Path, data: bytes, remedy: str | None = None) -> None:
    """Replace a file's content; `remedy` says what to do if the disk is full, else it is to resume the run."""
    path = Path(path)
    temporary = temporary_name(path)
    try:
        with explained(path, remedy):
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            synchronise(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, remedy: str | None = None) -> None:
    """Replace a file's content by text in UTF-8."""
    write_bytes(path, text.encode(), remedy)


def write_json(path: Path, value: Any) -> None:
    """Replace a file's content by a value as JSON."""
    write_text(path, as_json(value))


def as_json(value: Any) -> str:
    """Return a value as JSON for people to read; a number that is not finite is an error."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


@contextlib.contextmanager
def replacing_folder(path: Path, run: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; once the block ends well it is on disk and stands at `path`."""
    temporary = temporary_name(path)
    try:
        with explained(path, f"resume with `framp resume {run}`"):
            temporary.mkdir(parents=True)
            yield temporary
            for file in sorted(temporary.iterdir()):
                synchronise(file)
            synchronise(temporary)
            _exchange(temporary, path)
            synchronise(path.parent)
    finally:
        remove_leftovers(path.parent)


def _exchange(new: Path, path: Path) -> None:
    if not path.exists():
        os.replace(new, path)
        return
    aside = temporary_name(path)  # a folder cannot replace a folder that has content
    os.replace(path, aside)
    try:
        os.replace(new, path)
    except BaseException:
        os.replace(aside, path)
        raise


def temporary_name(path: Path) -> Path:
    """Return a name of its own beside `path`, which marks the file or folder as unfinished."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")


def is_leftover(path: Path) -> bool:
    """Tell whether a file or folder is what an interrupted write left."""
    return path.name.startswith(".") and path.name.endswith(PARTIAL)


def remove_leftovers(folder: Path) -> None:
    """Remove what interrupted writes left in a folder, as far as the disk allows."""
    if not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        if is_leftover(path):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)


def synchronise(path: Path) -> None:
    """Wait until a file or a folder's list of names is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(path: Path, remedy: str | None = None) -> Iterator[None]:
    """Turn what the disk refuses into one line that says what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = _errno(error)
        if code in _FULL:
            what_next = remedy or f"resume with `framp resume {path.parent}`"
            raise RunFolderError(f"no space left on the disk of {path}: free some and {what_next}") from None
        reason = " ".join(str(error).split()) if code is None else os.strerror(code)
        raise RunFolderError(f"cannot write {path}: {reason}; mend that or choose another folder") from None


def _errno(error: OSError | SafetensorError) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    found = re.search(r"os error (\d+)", str(error))  # safetensors says it in its text alone
    return int(found.group(1)) if found else None
