"""Ready-made configurations that come with the package, one TOML file each."""

import os
import tomllib
from importlib import resources
from pathlib import Path

from framp.config import Config
from framp.errors import ConfigError, unknown


def names() -> list[str]:
    """Return the names of all presets."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def load(name_or_path: str) -> Config:
    """Return the preset of that name, or the configuration in that TOML file.

    A file that gives itself no name is called after its file name.
    """
    if name_or_path in names():
        text = resources.files(__name__).joinpath(f"{name_or_path}.toml").read_text(encoding="utf-8")
        return Config.from_dict({"name": name_or_path} | tomllib.loads(text))
    if not name_or_path.endswith(".toml") and os.sep not in name_or_path:
        raise ConfigError(f"{unknown('preset', name_or_path, names())} (the path of a .toml file is accepted as well)")
    path = Path(name_or_path).expanduser()
    config = Config.from_toml(path)
    if "name" in tomllib.loads(path.read_text(encoding="utf-8")):
        return config
    return config.with_values({"name": path.stem})


def purpose(name: str) -> str:
    """Return what a preset is for: the first comment of its file."""
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    comment = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    return comment[0] if comment else ""
