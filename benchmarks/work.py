"""Budgets of work: what masks of ResNet-18 keep of its parameters and multiply-adds, and how long the choice takes."""

import time
from statistics import median

import torch
from torch import Tensor

from benchmarks.timing import Figure
from framp.budgets import Budget
from framp.data.kinds import Images
from framp.layout import ParameterLayout
from framp.models import NamedArchitecture, initialised
from framp.settings import ModelConfig
from framp.stage2_extraction import CostTopK
from framp.work import work_of

BUDGETS = ("1/64", "1/16", "1/4")


def figures(turns: int = 3) -> list[Figure]:
    """Choose from the network as it starts, for several exponents; the slowest choice counts."""
    torch.set_num_threads(1)
    kind = Images(3, 32, 32)
    module = initialised(NamedArchitecture(ModelConfig("resnet18", 64, "batch"), kind, 10), 0)
    layout = ParameterLayout.of(module)
    work, weights = work_of(module, layout, kind), layout.flatten(module)[: layout.maskable]
    rules = {"parameters alone, p = 0": CostTopK(work, 0.0, False)}
    rules |= {f"both, p = {exponent:g}": CostTopK(work, exponent, True) for exponent in (0.0, 0.25, 0.5, 1.0)}
    found = []
    for title, rule in rules.items():
        shares, times = [], []
        for name in BUDGETS:
            indices = rule.select(weights, Budget.parse(name), 1).indices
            assert indices is not None
            shares.append(f"{name}: {len(indices) / layout.maskable:.4f} / {work.share(indices):.4f}")
            times.append(median(_seconds(rule, weights, name) for _ in range(turns)))
        found.append(Figure(f"CostTopK of 11.2 M entries, {title}, seconds", max(times), 1.0, ", ".join(shares)))
    return found


def _seconds(rule: CostTopK, weights: Tensor, budget: str) -> float:
    """Return the processor's time for one choice."""
    started = time.process_time()
    rule.select(weights, Budget.parse(budget), 1)
    return time.process_time() - started
