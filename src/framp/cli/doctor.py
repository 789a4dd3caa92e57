"""`framp doctor`: what this machine and this installation have."""

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from framp.cli import options
from framp.cli.output import Output


def doctor(json: options.Json = False) -> None:
    """Show versions, optional extras, cores, threads, memory and the cache."""
    found = examine()
    output = Output(json)
    if output.wordy:
        _show(found, output)
    output.last("", found)


def examine() -> dict[str, Any]:
    """Return all findings as plain values."""
    import torch

    from framp.execution import kernels

    core, extras = _requirements()
    cache = Path(os.environ.get("FRAMP_CACHE") or "~/.cache/framp").expanduser()
    total, available = _memory()
    return {
        "versions": {"python": platform.python_version(), "framp": _version("framp")}
        | {name: _version(name) for name in core},
        "extras": {
            extra: {
                "complete": all(_version(name) for name in names),
                "missing": [name for name in names if not _version(name)],
                "install": f'pip install "framp[{extra}]"',
            }
            for extra, names in extras.items()
        },
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "kernels": found.name if (found := kernels()) else None,
        "memory": {"total_bytes": total, "available_bytes": available},
        "cache": {"folder": str(cache), "free_bytes": shutil.disk_usage(_nearest_existing(cache)).free},
    }


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    """Return the packages that FRAMP needs, and those of each extra, as the installation declares them."""
    core: list[str] = []
    metadata = importlib.metadata.metadata("framp")
    extras: dict[str, list[str]] = {name: [] for name in metadata.get_all("Provides-Extra") or []}
    for line in importlib.metadata.requires("framp") or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            core.append(requirement.name)
            continue
        for extra, names in extras.items():
            if requirement.marker.evaluate({"extra": extra}):
                names.append(requirement.name)
    return core, extras


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> tuple[int | None, int | None]:
    """Return total and available memory in bytes, as far as the system tells."""
    path = Path("/proc/meminfo")
    if path.exists():
        lines = (line.split() for line in path.read_text().splitlines())
        sizes = {fields[0].rstrip(":"): 1024 * int(fields[1]) for fields in lines if len(fields) > 1}
        return sizes.get("MemTotal"), sizes.get("MemAvailable")
    if "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), None
    return None, None


def _nearest_existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _show(found: dict[str, Any], output: Output) -> None:
    from framp.report.tables import Cell, Column, Table
    from framp.report.units import bytes_text

    def size(count: int | None) -> str:
        return "unknown" if count is None else bytes_text(count)

    lines = {name: version or "MISSING" for name, version in found["versions"].items()}
    for extra, state in found["extras"].items():
        absent = f"missing {', '.join(state['missing'])}; {state['install']}"
        lines[f"extra {extra}"] = "complete" if state["complete"] else absent
    lines["cores"] = f"{found['cores']} (torch would use {found['torch_threads']} threads; a run uses 1 a process)"
    lines["kernels"] = found["kernels"] or (
        "none: submodels of single entries are computed as whole networks; install a C++ compiler, then FRAMP again"
    )
    memory = found["memory"]
    lines["memory"] = f"{size(memory['available_bytes'])} available of {size(memory['total_bytes'])}"
    lines["cache"] = f"{found['cache']['folder']}, {size(found['cache']['free_bytes'])} free"
    columns = [Column("", ("what",), left=True), Column("", ("found",), left=True)]
    rows = [[Cell(name, (name,)), Cell(text, (text,))] for name, text in lines.items()]
    output.table(Table(f"FRAMP on {platform.system()} {platform.machine()}", columns, rows))
