"""The runs of a comparison: which there are, which are missing, and whether they belong together."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framp.config import Config
from framp.errors import RunFolderError


@dataclass(frozen=True)
class Member:
    """One run of a comparison."""

    config: Config
    folder: Path

    @property
    def title(self) -> str:
        """What a reader calls it."""
        return f"{self.config.recipe}, seed {self.config.seed}"

    @property
    def state(self) -> str:
        """Whether it is "finished", "unfinished" or "none" so far."""
        from framp import runs

        return str(runs.status(self.folder)["state"])


@dataclass(frozen=True)
class Plan:
    """All runs of a comparison, recipe by recipe."""

    config: Config
    folder: Path
    recipes: Sequence[str]
    seeds: Sequence[int]

    @property
    def members(self) -> list[Member]:
        """The runs that the comparison consists of."""
        return [self._member(recipe, seed) for recipe in self.recipes for seed in self.seeds]

    def _member(self, recipe: str, seed: int) -> Member:
        config = self.config.with_values({"recipe": recipe, "seed": seed})
        return Member(config, self.folder / f"{recipe}-seed{seed}")

    def check(self) -> None:
        """Raise if a run in the folder has other settings or another partition than this comparison."""
        if self.folder.exists() and not self.folder.is_dir():
            raise RunFolderError(f"{self.folder} is a file; choose another --out")
        if (self.folder / "config.toml").exists():
            raise RunFolderError(f"{self.folder} holds a single run; choose another --out for a comparison")
        found = self._existing()
        for folder in found:
            self._check_settings(folder)
        missing = any(member.folder not in found for member in self.members)
        self.check_data(self._expected() if found and missing else None)

    def check_data(self, expected: dict[str, str] | None = None) -> None:
        """Raise if the runs in the folder were not all made over one partition of the same data."""
        from framp.runs.folder import stored_data, stored_partition

        known = dict(expected or {})
        for folder in self._existing():
            for what, found in (("partition", stored_partition(folder)), ("data", stored_data(folder))):
                if found is not None and found != known.setdefault(what, found):
                    raise RunFolderError(
                        f"{folder} was run over {what} {found[:12]}, the others over {known[what][:12]}: the data have "
                        "changed in between; choose another --out or remove that folder"
                    )

    def _existing(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob("*/config.toml"))

    def _check_settings(self, folder: Path) -> None:
        from framp.data import located

        there = located(Config.from_toml(folder / "config.toml"))
        here = located(self.config.with_values({"recipe": there.recipe, "seed": there.seed}))
        # two folders may hold the same labels with other images, which no partition shows
        if there.sha256() == here.sha256() and there.data.path == here.data.path:
            if folder.name == f"{there.recipe}-seed{there.seed}":
                return
            raise RunFolderError(f"{folder} holds {there.recipe}, seed {there.seed}; rename it or choose another --out")
        key, was, is_now = _first_difference(there.to_dict(), here.to_dict())
        raise RunFolderError(
            f"{folder} was run with {key} = {json.dumps(was)}, this comparison has {json.dumps(is_now)}; "
            f"choose another --out, or {_option(key, was)}"
        )

    def _expected(self) -> dict[str, str]:
        from framp.data.clients import dealt

        data = dealt(self.config)
        return {"partition": data.partition.sha256, "data": data.dataset.sha256}


def _option(key: str, value: Any) -> str:
    """Return the argument that gives a setting a value, whatever the other arguments are: a flag wins over --set."""
    if key == "rounds":
        return f"--rounds {value}"
    text = value if isinstance(value, str) else json.dumps(value)
    return f"--set {shlex.quote(f'{key}={text}')}"


def _first_difference(there: dict[str, Any], here: dict[str, Any], prefix: str = "") -> tuple[str, Any, Any]:
    for key, value in there.items():
        if key in ("engine", "checkpoint", "name") or value == here[key]:
            continue
        if isinstance(value, dict):
            return _first_difference(value, here[key], f"{key}.")
        return prefix + key, value, here[key]
    raise AssertionError("equal configurations")
