"""The registry on disk: written once at the start, so that a resumed run needs no second enrolment."""

import os
from collections.abc import Iterable
from pathlib import Path

import torch

from framp.budgets import Budget
from framp.errors import CheckpointError
from framp.runs import tensors
from framp.runs.atomic import explained, remove_leftovers, synchronise, temporary_name, write_json
from framp.server import Registry

SCHEMA = 1
TENSORS, META = "registry.safetensors", "registry.json"


def save_registry(folder: Path, registry: Registry) -> None:
    """Write who has enrolled."""
    folder = Path(folder)
    content = {
        "descriptors": registry.descriptors,
        "group": torch.from_numpy(registry.group),
        "samples": torch.from_numpy(registry.samples),
    }
    temporary = temporary_name(folder / TENSORS)
    try:
        with explained(folder / TENSORS):
            temporary.mkdir()
            written = tensors.write_tensors(temporary / TENSORS, content)
            synchronise(temporary / TENSORS)
            os.replace(temporary / TENSORS, folder / TENSORS)
            synchronise(folder)
        # the record comes last: without it there is no registry
        write_json(folder / META, {"schema": SCHEMA, "clients": len(registry), **written})
    finally:
        remove_leftovers(folder)


def has_registry(folder: Path) -> bool:
    """Tell whether the registry was written to the end."""
    return (Path(folder) / META).exists()


def load_registry(folder: Path, budgets: Iterable[Budget]) -> Registry:
    """Read who has enrolled, after checking it."""
    path = Path(folder) / META
    try:
        meta = tensors.read_meta(path, SCHEMA, ("bytes", "sha256"))
        path = Path(folder) / TENSORS
        content = tensors.read_tensors(path, meta["bytes"], meta["sha256"])
    except ValueError as error:
        raise CheckpointError(
            f"{path} {error}; delete {Path(folder) / META} and resume again: the clients will enrol anew"
        ) from None
    return Registry(tuple(budgets), content["group"].numpy(), content["samples"].numpy(), content["descriptors"])
