"""Three rounds of every recipe against the transcription of its formulas: float64 to 1e-12, float32 to 1e-6."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from framp.budgets import Budget
from framp.config import Config
from framp.messages import Submodel
from framp.recipes import RECIPES
from framp.server import play

from . import extraction
from .extraction import Asked, Held, LearnedScore
from .methods import METHODS, Method, Played, Start, exits, learned_score
from .objectives import Prototypes
from .scalars import Vector
from .toy import Pair, Watching, numbers

ROUNDS = (1, 2, 3)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}

#: Budgets of one, two and three exits.
OWN: dict[str, dict[str, Any]] = {"scalefl": {"federation.budgets": ["1/9", "0.3", "2/3", "1"]}}

#: What can be set otherwise: recipe, settings, and the rule where the settings change the method's parts.
VARIANTS: dict[str, tuple[str, dict[str, Any], Method | None]] = {
    **{recipe: (recipe, OWN.get(recipe, {}), None) for recipe in METHODS},
    "framp, as in the paper": (
        "framp",
        {
            "generation.shared_rate": 0.12,
            "generation.personal_rate": 0.12,
            "generation.centred": False,
            "generation.head_scale": 0.1,
            "generation.served_strength": 1.0,
            "generation.served_average": 1.0,
            "alignment.distance": "mse",
            "alignment.weight": 0.7,
        },
        None,
    ),
    "framp, mean over holders": (
        "framp",
        {
            "generation.shared_mean": "holders",
            "generation.head_scale": 0.1,
            "generation.standardise": False,
            "generation.served_average": 0.6,
            "alignment.distance": "euclidean",
            "alignment.reduction": "sum",
            "alignment.average": "weighted",
        },
        None,
    ),
    "framp-no-personalisation, squared distance": (
        "framp-no-personalisation",
        {"alignment.distance": "squared", "shared.rate": 0.5, "shared.served_average": 0.3},
        None,
    ),
    "framp-no-personalisation, head, sum": ("framp-no-personalisation", {"alignment.reduction": "sum"}, None),
    "heterofl, native settings": (
        "heterofl",
        {"training.momentum": 0.9, "training.weight_decay": 5e-4, "training.clip": 1.0, "training.steps": 4},
        None,
    ),
    "heterofl, original rule": (
        "heterofl",
        {"width.rule": "original"},
        Method(
            METHODS["heterofl"].backbone,
            extraction.width_prefix_original,
            METHODS["heterofl"].objective,
            own_rows=True,
        ),
    ),
    "framp-cost, parameters alone": (
        "framp-cost",
        {"cost.budget": "parameters", "cost.exponent": 0.5},
        replace(METHODS["framp-cost"], extraction=extraction.cost_topk(0.5, of_work=False)),
    ),
    "framp-cost, magnitude alone": (
        "framp-cost",
        {"cost.exponent": 0.0},
        replace(METHODS["framp-cost"], extraction=extraction.cost_topk(0.0)),
    ),
    "framp-mlp, quicker": ("framp-mlp", {"score.rate": 5.0, "generation.head_scale": 0.1}, None),
    "framp-neither, clipped": (
        "framp-neither",
        {"training.momentum": 0.5, "training.weight_decay": 0.01, "training.clip": 0.3, "training.steps": 3},
        None,
    ),
    "scalefl, as in the code": (
        "scalefl",
        OWN["scalefl"]
        | {"exits.distillation_form": "code", "exits.distillation": 0.5, "exits.distillation_start": 0.0},
        None,
    ),
}


def test_every_recipe_has_a_transcription() -> None:
    assert set(RECIPES) == set(METHODS)


def deviation(found: Sequence[float], expected: Sequence[float]) -> float:
    """The largest difference, relative to the value where that is above 1."""
    assert len(found) == len(expected)
    return max((abs(a - b) / max(1.0, abs(b)) for a, b in zip(found, expected, strict=True)), default=0.0)


def submodel_deviation(found: Submodel, held: Held, weights: Vector, maskable: int) -> float:
    """Compare a submodel with the entries and values that it should have; the entries have to be the same."""
    below = [entry for entry in held.entries if entry < maskable]
    above = [entry for entry in held.entries if entry >= maskable]
    indices = list(range(maskable)) if found.indices is None else found.indices.tolist()
    assert indices == below
    return max(
        deviation(numbers(found.values), [weights[entry] for entry in below]),
        deviation(numbers(found.always), [weights[entry] for entry in above]),
    )


def prototypes_deviation(found: Any, expected: Prototypes | None) -> float:
    if expected is None or found is None:
        assert found is None
        assert expected is None
        return 0.0
    assert found.counts.tolist() == expected.counts
    return deviation(numbers(found.vectors), [value for row in expected.vectors for value in row])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_three_rounds_are_the_formulas(variant: str, dtype: torch.dtype) -> None:
    found = deviations(variant, dtype)
    assert max(found.values()) <= TOLERANCE[dtype], found


def deviations(variant: str, dtype: torch.dtype) -> dict[str, float]:
    recipe, values, method = VARIANTS[variant]
    return deviations_of(recipe, values, method, dtype)


def deviations_of(recipe: str, values: dict[str, Any], method: Method | None, dtype: torch.dtype) -> dict[str, float]:
    """Play three rounds; return the largest deviation of each thing compared."""
    pair = Pair(recipe, values, dtype, method)
    found: dict[str, float] = {}
    with pair.federation:
        for round in ROUNDS:
            for what, value in compared_round(pair, round).items():
                found[what] = max(value, found.get(what, 0.0))
        found["in use"] = models_in_use(pair)
    return found


def compared_round(pair: Pair, round: int) -> dict[str, float]:
    """Play a round with both, and compare tasks, answers and state."""
    server, toy = pair.federation.server, pair.toy
    engine = Watching(pair.federation, {}, {})
    report = play(server, engine, round)
    assert report.accepted == pair.config.federation.participants
    pair.transcription.describe(*pair.descriptors())
    played = pair.transcription.play(round, pair.participants(engine.tasks))
    found = {"task": 0.0, "answer": 0.0, "state": 0.0}
    for client, task in engine.tasks.items():
        one = played[client]
        away = submodel_deviation(task.submodel, one.held, one.received, toy.maskable)
        found["task"] = max(found["task"], away, prototypes_deviation(task.prototypes, one.prototypes))
        found["answer"] = max(found["answer"], answer_deviation(engine.updates[client], one, pair))
    expected = pair.transcription.state()
    state = {name: tensor for name, tensor in server.state().items() if not name.startswith("descriptors.")}
    assert set(state) == set(expected)
    found["state"] = max(deviation(numbers(state[name]), expected[name]) for name in state)
    return found


def answer_deviation(update: Any, one: Played, pair: Pair) -> float:
    """Compare changes, loss and prototypes."""
    changes = [one.answer.weights[entry] - one.received[entry] for entry in one.held.entries]
    prototypes = one.answer.prototypes if pair.method.prototypes else None
    return max(
        deviation(numbers(update.values) + numbers(update.always), changes),
        deviation([update.loss], [one.answer.loss]),
        prototypes_deviation(update.prototypes, prototypes),
    )


def models_in_use(pair: Pair) -> float:
    """Compare each client's own model and the Union model of each budget after the last round."""
    server, transcription = pair.federation.server, pair.transcription
    found, last = [], ROUNDS[-1]
    for client in range(pair.config.partition.clients):
        weights = transcription.backbone.in_use(client)
        held = transcription.held(weights, pair.budget(client), last)
        found.append(submodel_deviation(server.personal(client, last), held, weights, pair.toy.maskable))
    for name in pair.config.federation.budgets:
        weights = transcription.backbone.in_use(None)
        budget = Budget.parse(name)
        held = transcription.held(weights, budget.fraction, last)
        found.append(submodel_deviation(server.union(budget, last), held, weights, pair.toy.maskable))
    return max(found)


def wrong_ties(asked: Asked) -> Held:
    """The k largest magnitudes, ties to the higher index."""
    toy = asked.toy
    kept = sorted(range(toy.maskable), key=lambda place: (-abs(asked.weights[place]), -place))[: asked.limit]
    return Held(sorted(kept) + list(range(toy.maskable, toy.size)), toy.everything(), (toy.depth,))


def forwards(asked: Asked) -> Held:
    """A window that moves forwards."""
    return extraction.width_rolling(replace(asked, round=2 - asked.round))


def nothing_learned(config: Config, start: Start) -> LearnedScore:
    return replace(learned_score(config, start), rate=0.0)


#: Methods with one rule wrong.
WRONG = {
    "ties to the higher index": ("framp-neither", replace(METHODS["framp-neither"], extraction=wrong_ties)),
    "FIARSE over holders": ("fiarse", replace(METHODS["fiarse"], backbone=METHODS["framp-neither"].backbone)),
    "holders over those who moved": (
        "framp-neither",
        replace(METHODS["framp-neither"], backbone=METHODS["fiarse"].backbone),
    ),
    "FIARSE without its threshold": ("fiarse", replace(METHODS["fiarse"], threshold=False)),
    "everybody's class rows": ("heterofl", replace(METHODS["heterofl"], own_rows=False)),
    "no masked labels": ("heterofl", replace(METHODS["heterofl"], objective=METHODS["fedavg"].objective)),
    "a window that stays": ("fedrolex", replace(METHODS["fedrolex"], extraction=extraction.width_prefix)),
    "a window that moves forwards": ("fedrolex", replace(METHODS["fedrolex"], extraction=forwards)),
    "only the last exit": ("scalefl", replace(METHODS["scalefl"], objective=METHODS["fedavg"].objective)),
    "no distillation": ("scalefl", replace(METHODS["scalefl"], objective=lambda config, round: exits(config, 1))),
    "no alignment": ("framp", replace(METHODS["framp"], objective=METHODS["fedavg"].objective)),
    "a score that learns nothing": ("framp-mlp", replace(METHODS["framp-mlp"], learned=nothing_learned)),
    "magnitude alone": ("framp-cost", replace(METHODS["framp-cost"], extraction=extraction.cost_topk(0.0))),
    "a budget of parameters alone": (
        "framp-cost",
        replace(METHODS["framp-cost"], extraction=extraction.cost_topk(of_work=False)),
    ),
    "one threshold": ("framp-layerwise", replace(METHODS["framp-layerwise"], extraction=extraction.global_topk)),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_the_toy_problem_shows_a_wrong_rule(mistake: str) -> None:
    recipe, method = WRONG[mistake]
    assert away(recipe, method) > 1e-5


def away(recipe: str, method: Method) -> float:
    """How far a method is from the federation's; where they choose other entries, as far as can be."""
    try:
        return max(deviations_of(recipe, OWN.get(recipe, {}), method, torch.float64).values())
    except AssertionError:
        return math.inf


def test_the_toy_problem_has_what_the_rules_are_about() -> None:
    """Networks of each depth, foreign classes, classes that nobody has in a round, short batches, equal weights."""
    pair = Pair("scalefl", OWN["scalefl"], torch.float64)
    with pair.federation:
        weights = pair.transcription.backbone.full(0)
        held = [pair.transcription.held(weights, budget, 1) for budget in pair.transcription.budgets]
    assert [one.depths for one in held] == [(1,), (1, 2), (1, 2, 3), (1, 2, 3)]
    widths = [[len(kept) for kept in one.channels[: one.depths[-1]]] for one in held]
    assert widths == [[1], [1, 2], [2, 2, 3], [3, 4, 8]]

    pair = Pair("framp-neither", {}, torch.float64)
    missing = set()
    with pair.federation:
        weights = [abs(weight) for weight in pair.transcription.backbone.full(0)[: pair.toy.maskable]]
        for round in ROUNDS:
            engine = Watching(pair.federation, {}, {})
            play(pair.federation.server, engine, round)
            participants = pair.participants(engine.tasks)
            assert {len(labels) for one in participants for _, labels in one.batches} == {4, 2}
            own = [set(one.everything[1]) for one in participants]
            missing |= {(round, c) for c in range(pair.toy.classes) if not any(c in classes for classes in own)}
            assert any(len(classes) < pair.toy.classes for classes in own)
    assert missing
    assert len(set(weights)) < len(weights)
    assert 0.0 in weights
