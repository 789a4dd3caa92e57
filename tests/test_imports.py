import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import framp
from framp.recipes import RECIPES

PACKAGE = Path(framp.__path__[0])
SERVER_SIDE = ("framp.server", "framp.stage1_generation", "framp.stage2_extraction")
FILES = sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield all modules that a file imports, also inside functions; names of a module count as its parts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def below(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def files(*names: str) -> list[Path]:
    found = [path for path in FILES if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in names]
    assert found
    return found


def test_the_clients_side_never_imports_the_servers() -> None:
    side = ("client", "stage3_objective", "messages", "layout", "models", "data", "rng", "budgets")
    for path in files(*side, "work", "footprint", "cost", "execution"):
        assert [module for module in imported(path) if below(module, SERVER_SIDE)] == [], path


def test_the_wire_knows_neither_of_its_ends() -> None:
    ends = (*SERVER_SIDE, "framp.client", "framp.engines", "framp.federation", "framp.recipes", "framp.cli")
    for path in files("wire"):
        assert [module for module in imported(path) if below(module, ends)] == [], path


def test_the_stages_do_not_know_one_another_nor_who_calls_them() -> None:
    callers = ("framp.server", "framp.client", "framp.engines", "framp.federation", "framp.recipes", "framp.cli")
    stages = {stage: f"framp.{stage}" for stage in ("stage1_generation", "stage2_extraction", "stage3_objective")}
    for stage in stages:
        others = tuple(module for name, module in stages.items() if name != stage)
        for path in files(stage):
            assert [module for module in imported(path) if below(module, callers + others)] == [], path


def test_the_foundations_import_nothing_above_them() -> None:
    above = (*SERVER_SIDE, "framp.client", "framp.engines", "framp.federation", "framp.recipes", "framp.cli")
    for path in files("errors", "rng", "budgets", "config", "settings", "layout"):
        assert [module for module in imported(path) if below(module, above)] == [], path


def test_a_device_does_not_load_what_it_does_not_need() -> None:
    program = "import framp.client, framp.stage3_objective, sys; print(*sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = shown.stdout.split()
    assert "framp.client" in loaded
    absent = (*SERVER_SIDE, "framp.engines", "framp.federation", "framp.cli", "matplotlib", "datasets", "tensorboard")
    of_graphs_alone = ("scipy", "pandas", "torch_geometric", "ogb")
    assert [name for name in loaded if below(name, absent + of_graphs_alone)] == []


def test_no_code_asks_which_recipe_it_runs() -> None:
    """A method is its parts: the recipe's name decides nothing but the row of the table."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                assert not any(side.split(".")[-1] == "recipe" for side in sides), f"{path}:{node.lineno}"
            if isinstance(node, ast.Match):
                assert ast.unparse(node.subject).split(".")[-1] != "recipe", f"{path}:{node.lineno}"


def test_no_code_asks_which_part_it_has() -> None:
    """Parts are told apart by what they do, never by their class."""
    parts = {name for recipe in RECIPES.values() for name in recipe.parts if name}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "type"):
                names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
                assert not names & parts, f"{path}:{node.lineno}"


def test_the_public_names_are_there() -> None:
    for name in framp.__all__:
        assert getattr(framp, name) is not None
    assert dir(framp) == sorted(framp.__all__)
    with pytest.raises(AttributeError, match="module 'framp' has no attribute 'Federatoin'"):
        framp.Federatoin  # noqa: B018
