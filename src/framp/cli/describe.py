"""`framp recipes` and `framp config`: what there is to choose from, and what a choice amounts to."""

import json as json_module

from framp.cli import options
from framp.cli.output import Output


def recipes(json: options.Json = False) -> None:
    """List the methods and the three parts that each consists of."""
    from framp.recipes import RECIPES
    from framp.report.tables import Cell, Column, Table

    headings = ("recipe", "1 generation", "2 extraction", "3 objective", "what it is")
    keys = ("recipe", "backbone", "extractor", "objective", "summary")
    rows = []
    values: list[dict[str, str | None]] = []
    for name, recipe in RECIPES.items():
        backbone = _name(recipe.backbone)
        descriptors = _name(recipe.descriptors) if recipe.descriptors else None
        text = f"{backbone}({descriptors})" if descriptors else backbone
        parts = (name, text, _name(recipe.extractor), _name(recipe.objective), recipe.summary)
        rows.append([Cell(part, (part,)) for part in parts])
        values.append({**dict(zip(keys, parts, strict=True)), "backbone": backbone, "descriptors": descriptors})
    columns = [Column(heading, (key,), left=True) for heading, key in zip(headings, keys, strict=True)]
    output = Output(json)
    output.table(Table("Every method is a recipe of three parts", columns, rows))
    output.last("", {"recipes": values})


def config(preset: options.Preset, settings: options.Set = None, json: options.Json = False) -> None:
    """Print the complete configuration of a preset as TOML, each setting with its explanation."""
    resolved = options.configured(preset, settings)
    if json:
        from framp.data import located

        value = resolved.to_dict() | {"sha256": located(resolved).sha256()}
        print(json_module.dumps(value, indent=1, ensure_ascii=False))
    else:
        print(resolved.to_toml(explain=True), end="")


def _name(part: object) -> str:
    assert isinstance(part, type)
    return part.__name__
