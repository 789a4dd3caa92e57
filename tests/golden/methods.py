"""Every method as its three parts, and one round of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from framp.config import Config

from . import extraction, objectives
from .client import Descent, Loss, Samples, Trained, train
from .extraction import Asked, Held, LearnedScore, Rule
from .objectives import Prototypes
from .scalars import Toy, Vector
from .servers import Backbone, Generated, Matrix, Returned, RunningAverage, Shared, SharedWhereMoved, merged_prototypes


@dataclass(frozen=True)
class Start:
    """What a federation begins with: its own initial state and descriptors, as numbers."""

    state: Mapping[str, Vector]
    descriptors: Matrix
    average: Vector


def shared(config: Config, start: Start) -> Backbone:
    vector = start.state["shared"]
    return Shared(vector, config.shared.rate, RunningAverage(vector, config.shared.served_average))


def shared_where_moved(config: Config, start: Start) -> Backbone:
    vector = start.state["shared"]
    return SharedWhereMoved(vector, config.shared.rate, RunningAverage(vector, config.shared.served_average))


def generated(config: Config, start: Start) -> Backbone:
    settings, state = config.generation, start.state
    return Generated(
        rows(state["inner.weight"], len(start.average)),
        list(state["inner.bias"]),
        rows(state["head.weight"], settings.hidden),
        list(state["head.bias"]),
        start.descriptors,
        start.average,
        settings.centred,
        settings.shared_rate,
        settings.personal_rate,
        settings.shared_mean == "holders",
        settings.served_strength,
        RunningAverage(list(state["head.bias"]), settings.served_average),
    )


def rows(values: Vector, width: int) -> Matrix:
    return [values[start : start + width] for start in range(0, len(values), width)]


def learned_score(config: Config, start: Start) -> LearnedScore:
    state = start.state
    inner, bias, outer = state["score.inner"], state["score.inner_bias"], state["score.outer"]
    return LearnedScore(rows(inner, len(inner) // len(bias)), list(bias), list(outer), config.score.rate)


def plain(config: Config, round: int) -> Loss:
    return objectives.plain


def label_masked(config: Config, round: int) -> Loss:
    return objectives.label_masked


def aligned(config: Config, round: int) -> Loss:
    settings = config.alignment
    return lambda batch: objectives.aligned(batch, settings.weight, settings.distance, settings.reduction)


def exits(config: Config, round: int) -> Loss:
    """Distillation starts after a share of the rounds."""
    settings = config.exits
    distils = round > floor(settings.distillation_start * config.rounds)
    in_code = settings.distillation_form == "code"
    return lambda batch: objectives.exits(batch, settings.distillation, settings.temperature, distils, in_code)


@dataclass(frozen=True)
class Method:
    """One row of the paper's table."""

    backbone: Callable[[Config, Start], Backbone]
    extraction: Rule
    objective: Callable[[Config, int], Loss]
    threshold: bool = False
    prototypes: bool = False
    own_rows: bool = False
    """Whether a participant counts only for the output rows of its own classes."""
    exits: bool = False
    learned: Callable[[Config, Start], LearnedScore] | None = None
    """An extraction rule that learns, instead of `extraction`."""


METHODS = {
    "framp": Method(generated, extraction.global_topk, aligned, prototypes=True),
    "framp-no-alignment": Method(generated, extraction.global_topk, plain),
    "framp-no-personalisation": Method(shared, extraction.global_topk, aligned, prototypes=True),
    "framp-neither": Method(shared, extraction.global_topk, plain),
    "framp-layerwise": Method(generated, extraction.layerwise_topk, aligned, prototypes=True),
    "framp-cost": Method(generated, extraction.cost_topk(), aligned, prototypes=True),
    "framp-onehot": Method(generated, extraction.global_topk, aligned, prototypes=True),
    "framp-mlp": Method(generated, extraction.global_topk, aligned, prototypes=True, learned=learned_score),
    "framp-update": Method(generated, extraction.global_topk, aligned, prototypes=True),
    "fiarse": Method(shared_where_moved, extraction.global_topk, plain, threshold=True),
    "heterofl": Method(shared, extraction.width_prefix, label_masked, own_rows=True),
    "fedrolex": Method(shared, extraction.width_rolling, label_masked, own_rows=True),
    "scalefl": Method(shared, extraction.depth_width, exits, exits=True),
    "fedavg": Method(shared, extraction.everything, plain),
}


@dataclass(frozen=True)
class Participant:
    """What is given of one participant in one round: who it is, its budget, its batches, all of its samples."""

    client: int
    budget: Fraction
    batches: Sequence[Samples]
    everything: Samples


@dataclass(frozen=True)
class Played:
    """What one participant was sent, and what it answered."""

    received: Vector
    held: Held
    prototypes: Prototypes | None
    answer: Trained


class Transcription:
    """A method's server, which plays its clients itself."""

    def __init__(self, method: Method, toy: Toy, config: Config, start: Start) -> None:
        self.method, self.toy, self.config = method, toy, config
        self.backbone = method.backbone(config, start)
        self.learned = None if method.learned is None else method.learned(config, start)
        self.budgets = [Fraction(name) for name in config.federation.budgets]
        self.prototypes = Prototypes([[0.0] * toy.widths[-1] for _ in range(toy.classes)], [0] * toy.classes)

    def held(self, weights: Vector, budget: Fraction, round: int) -> Held:
        rule = self.learned or self.method.extraction
        return rule(Asked(self.toy, weights, budget, round, self.budgets))

    def play(self, round: int, participants: Sequence[Participant]) -> dict[int, Played]:
        """Play one round, participants by their ids."""
        method, training = self.method, self.config.training
        descent = Descent(training.rate, training.momentum, training.weight_decay, training.clip)
        known = self.prototypes if method.prototypes and any(self.prototypes.counts) else None
        loss = method.objective(self.config, round)
        played: dict[int, Played] = {}
        returned = []
        for one in participants:
            received = list(self.backbone.full(one.client))
            held = self.held(received, one.budget, round)
            answer = train(
                self.toy, held, received, one.batches, one.everything, known, loss, descent, method.threshold
            )
            played[one.client] = Played(received, held, known, answer)
            counted = frozenset(entry for entry in held.entries if self._counts(entry, set(one.everything[1])))
            returned.append(Returned(one.client, counted, received, answer.weights))
        if method.prototypes:
            answers = [found.answer.prototypes for found in played.values()]
            self.prototypes = merged_prototypes(self.prototypes, answers, self.config.alignment.average == "weighted")
        if self.learned is not None:
            self.learned.learn(self.toy, [(one.held, one.received, one.answer.weights) for one in played.values()])
        self.backbone.learn(returned)
        return played

    def describe(self, descriptors: Matrix, average: Vector) -> None:
        """Take over how the clients have described themselves: it is given."""
        if isinstance(self.backbone, Generated):
            self.backbone.descriptors, self.backbone.average = descriptors, average

    def _counts(self, entry: int, own_classes: set[int]) -> bool:
        of_class = self.toy.class_of(entry)
        return not self.method.own_rows or of_class is None or of_class in own_classes

    def state(self) -> dict[str, Vector]:
        """Everything that the server has learned, by name."""
        return {
            **self.backbone.state(),
            **({} if self.learned is None else self.learned.state()),
            "prototypes.vectors": [value for row in self.prototypes.vectors for value in row],
            "prototypes.counts": [float(count) for count in self.prototypes.counts],
        }
