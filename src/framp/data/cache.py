"""Where decoded data are kept: a folder for each content of the source files and each way to read them."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """Return where decoded data are kept."""
    return Path(os.environ.get("FRAMP_CACHE") or "~/.cache/framp").expanduser()


def entry(cache: Path, name: str, key: Any) -> Path:
    """Return the folder of one decoded set: a readable name, and a hash of all that decides its content."""
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(name).name)
    return cache / f"{readable}-{digest[:32]}"


def file_hash(file: Path) -> str:
    """Hash the content of a file."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
