"""Federated learning that gives every device its own model, of a size that the device can hold and train.

The public names; they are loaded when first used, so that a client need not load the server's side.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framp.budgets import Budget
    from framp.config import Config
    from framp.data import Dataset, Partition
    from framp.errors import FrampError
    from framp.evaluation import Evaluation
    from framp.federation import Federation
    from framp.layout import ParameterLayout
    from framp.messages import Submodel, Task, Update
    from framp.recipes import RECIPES, Recipe
    from framp.runs import Outcome, resume, start
    from framp.server import RoundReport

__version__ = "0.1.0"

_HOMES = {
    "Budget": "budgets",
    "Config": "config",
    "Dataset": "data",
    "Evaluation": "evaluation",
    "Federation": "federation",
    "FrampError": "errors",
    "Outcome": "runs",
    "ParameterLayout": "layout",
    "Partition": "data",
    "RECIPES": "recipes",
    "Recipe": "recipes",
    "RoundReport": "server",
    "Submodel": "messages",
    "Task": "messages",
    "Update": "messages",
    "resume": "runs",
    "start": "runs",
}

__all__ = [
    "RECIPES",
    "Budget",
    "Config",
    "Dataset",
    "Evaluation",
    "Federation",
    "FrampError",
    "Outcome",
    "ParameterLayout",
    "Partition",
    "Recipe",
    "RoundReport",
    "Submodel",
    "Task",
    "Update",
    "resume",
    "start",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'framp' has no attribute '{name}'")
    return getattr(import_module(f"framp.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
