"""Packages that only some of FRAMP needs: an extra that is missing is an error that names it."""

from importlib import import_module
from typing import Any

from framp.errors import FrampError


def needed(module: str, extra: str) -> Any:
    """Import a module of an extra, or say how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise FrampError(
            f"this needs the package {error.name}, which is not installed; install it with: "
            f'pip install "framp[{extra}]"'
        ) from None
