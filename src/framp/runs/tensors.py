"""Named tensors in one file with a checksum: the common ground of checkpoints and the registry."""

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

_BLOCK = 1 << 22


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Write tensors and return the size and the checksum of the file."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def read_tensors(path: Path, bytes: int, sha256: str) -> dict[str, Tensor]:
    """Map a file's tensors into memory; nothing is copied until it is used."""
    problem = what_is_wrong(path, bytes, sha256)
    if problem:
        raise ValueError(problem)
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"cannot be read ({error})") from None
    return tensors


def what_is_wrong(path: Path, bytes: int, sha256: str) -> str | None:
    """Say how a file differs from what was written, None if it does not."""
    try:
        size = path.stat().st_size
        if size != bytes:
            return f"is truncated: {size} of {bytes} bytes" if size < bytes else f"has {size} bytes instead of {bytes}"
        return None if _sha256(path) == sha256 else "does not match its checksum"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def read_meta(path: Path, schema: int, required: tuple[str, ...]) -> dict[str, Any]:
    """Read the record that goes with a file of tensors."""
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError("is missing") from None
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None
    except ValueError:
        raise ValueError("is damaged: it is no valid JSON") from None
    if not isinstance(meta, dict) or any(key not in meta for key in ("schema", *required)):
        raise ValueError("is damaged: it lacks entries")
    if meta["schema"] != schema:
        raise ValueError(f"has schema {meta['schema']}, but this version of FRAMP reads {schema}")
    return meta


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(view):
            digest.update(view[:count])
    return digest.hexdigest()
