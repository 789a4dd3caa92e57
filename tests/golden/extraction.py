"""Stage 2 as loops over scalars: which entries of the full vector a client holds in a round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, log, sqrt

from .scalars import Channels, Toy, Vector


@dataclass(frozen=True)
class Held:
    """A submodel: its entries (ascending, those that always travel too), its channels and the depths of its exits."""

    entries: list[int]
    channels: Channels
    depths: tuple[int, ...]


@dataclass(frozen=True)
class Asked:
    """What an extraction rule may depend on."""

    toy: Toy
    weights: Vector
    budget: Fraction
    round: int
    budgets: Sequence[Fraction]
    """All budgets of the federation."""

    @property
    def limit(self) -> int:
        """⌊γ·d⌋."""
        return int(self.budget * self.toy.maskable)


Rule = Callable[[Asked], Held]


def _mask(asked: Asked, kept: Sequence[int]) -> Held:
    """A mask over the full network: what is not maskable travels always."""
    toy = asked.toy
    always = range(toy.maskable, toy.size)
    return Held(sorted(kept) + list(always), toy.everything(), (toy.depth,))


def largest(weights: Vector, places: Sequence[int], k: int) -> list[int]:
    """The k places of largest magnitude; of equal magnitudes the lower place wins."""
    return sorted(places, key=lambda place: (-abs(weights[place]), place))[:k]


def everything(asked: Asked) -> Held:
    return _mask(asked, range(asked.toy.maskable))


def global_topk(asked: Asked) -> Held:
    """One threshold over all maskable entries."""
    return _mask(asked, largest(asked.weights, range(asked.toy.maskable), asked.limit))


def layerwise_topk(asked: Asked) -> Held:
    """⌊γ·n⌋ of each tensor's n entries, and one of a tensor that would have none while the budget has room for it."""
    counts = {name: int(asked.budget * size) for name, size in asked.toy.tensors}
    room = asked.limit - sum(counts.values())
    for name, count in counts.items():
        if count == 0 and room > 0:
            counts[name], room = 1, room - 1
    kept: list[int] = []
    for name, size in asked.toy.tensors:
        start = asked.toy.start(name)
        kept += largest(asked.weights, range(start, start + size), counts[name])
    return _mask(asked, kept)


def cost_topk(exponent: float = 0.25, of_work: bool = True, pixels: int = 4) -> Rule:
    """By |w| / cost^p, until γ·d entries are kept or the next would cost more than γ of all multiply-adds."""

    def rule(asked: Asked) -> Held:
        toy = asked.toy
        costs = [toy.cost(name, pixels) for name, size in toy.tensors for _ in range(size)]
        if asked.budget == 1:
            return everything(asked)
        scores = [abs(asked.weights[place]) / max(cost, 1) ** exponent for place, cost in enumerate(costs)]
        kept: list[int] = []
        spent = 0
        for place in sorted(range(toy.maskable), key=lambda place: (-scores[place], place)):
            spent += costs[place]
            if len(kept) == asked.limit or (of_work and spent > asked.budget * sum(costs)):
                break
            kept.append(place)
        return _mask(asked, kept)

    return rule


def _slice(toy: Toy, channels: Channels, depths: tuple[int, ...]) -> Held:
    return Held(toy.entries(channels, depths), channels, depths)


def _count(toy: Toy, widths: Sequence[int], depths: tuple[int, ...]) -> int:
    channels = [list(range(width)) for width in widths]
    return sum(entry < toy.maskable for entry in toy.entries(channels, depths))


def _widths(toy: Toy, ratio: Fraction) -> list[int]:
    return [ceil(ratio * width) for width in toy.widths]


def widest(toy: Toy, depths: tuple[int, ...], limit: int) -> Fraction | None:
    """The largest ratio r whose network of ⌈r·n⌉ channels a unit fits; None if none does."""
    ratios = {Fraction(kept, width) for width in toy.widths for kept in range(1, width + 1)}
    return max((r for r in ratios if _count(toy, _widths(toy, r), depths) <= limit), default=None)


def width_prefix(asked: Asked) -> Held:
    """HeteroFL: the first channels of every unit."""
    ratio = widest(asked.toy, (asked.toy.depth,), asked.limit)
    assert ratio is not None
    return _slice(asked.toy, [list(range(kept)) for kept in _widths(asked.toy, ratio)], (asked.toy.depth,))


def width_prefix_original(asked: Asked) -> Held:
    """HeteroFL's own rule, which can be over the budget: ⌈√γ·n⌉ of n channels."""
    ratio = Fraction(sqrt(asked.budget))
    return _slice(asked.toy, [list(range(kept)) for kept in _widths(asked.toy, ratio)], (asked.toy.depth,))


def width_rolling(asked: Asked) -> Held:
    """FedRolex: of n channels {−t mod n, ..., (−t + k − 1) mod n}, with t = 0 in the first round."""
    ratio = widest(asked.toy, (asked.toy.depth,), asked.limit)
    assert ratio is not None
    turn = asked.round - 1
    channels = [
        sorted((first - turn) % width for first in range(kept))
        for kept, width in zip(_widths(asked.toy, ratio), asked.toy.widths, strict=True)
    ]
    return _slice(asked.toy, channels, (asked.toy.depth,))


def depth_width(asked: Asked) -> Held:
    """ScaleFL: the first units, the first channels of each, the exits at the depths that the budgets end at."""
    toy = asked.toy
    every_depth = range(1, toy.depth + 1)
    ends = {_level(toy, budget, [(depth,) for depth in every_depth])[0][-1] for budget in asked.budgets}
    on_the_way = [tuple(exit for exit in sorted(ends) if exit <= depth) for depth in sorted(ends)]
    depths, ratio = _level(toy, asked.budget, on_the_way)
    return _slice(toy, [list(range(kept)) for kept in _widths(toy, ratio)], depths)


def _level(toy: Toy, budget: Fraction, choices: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], Fraction]:
    """Of the widest networks that fit at each depth, narrower than the full one, that of largest depth^1.5 · ratio."""
    without_exits = _count(toy, list(toy.widths), (toy.depth,))
    limit = toy.maskable if budget == 1 else int(budget * without_exits)
    fitting = []
    for depths in choices:
        ratio = widest(toy, depths, limit)
        if ratio is not None:
            fitting.append((depths, ratio))
    narrower = [(depths, ratio) for depths, ratio in fitting if ratio < 1]
    if budget == 1 or not narrower:
        return fitting[-1]
    return max(narrower, key=lambda level: level[0][-1] ** 1.5 * float(level[1]))


@dataclass
class LearnedScore:
    """TopK on s_j = |w_j|/s + Σ_h o_h·ReLU(A_h·x_j + a_h), x_j = (w_j/s, |w_j|/s, σ_tensor(j)/s, ln(k/d)).

    s is the standard deviation of all maskable weights (of a sample), σ that of a tensor (of a population).
    """

    inner: list[Vector]
    inner_bias: Vector
    outer: Vector
    rate: float

    def inputs(self, toy: Toy, weights: Vector, kept: int) -> list[Vector]:
        maskable = weights[: toy.maskable]
        scale = deviation(maskable, len(maskable) - 1)
        found = []
        for name, size in toy.tensors:
            own = weights[toy.start(name) : toy.start(name) + size]
            sigma = deviation(own, size) / scale
            found += [[weight / scale, abs(weight) / scale, sigma, log(kept / toy.maskable)] for weight in own]
        return found

    def hidden(self, inputs: Vector) -> Vector:
        return [
            max(0.0, bias + sum(weight * value for weight, value in zip(row, inputs, strict=True)))
            for row, bias in zip(self.inner, self.inner_bias, strict=True)
        ]

    def score(self, inputs: Vector) -> float:
        return inputs[1] + sum(weight * value for weight, value in zip(self.outer, self.hidden(inputs), strict=True))

    def __call__(self, asked: Asked) -> Held:
        scores = [self.score(inputs) for inputs in self.inputs(asked.toy, asked.weights, asked.limit)]
        order = sorted(range(asked.toy.maskable), key=lambda place: (-scores[place], place))
        return _mask(asked, order[: asked.limit])

    def learn(self, toy: Toy, answers: Sequence[tuple[Held, Vector, Vector]]) -> None:
        """Follow Δ_j·w_j·sigmoid'(s_j − θ)/√k, summed over a participant's k entries, averaged over participants.

        θ is the lowest score chosen. A full model says nothing about what to choose. An answer is what was held, the
        received and the trained weights.
        """
        inner_pull = [[0.0] * len(row) for row in self.inner]
        bias_pull, outer_pull = [0.0] * len(self.inner), [0.0] * len(self.inner)
        for held, received, trained in answers:
            kept = [entry for entry in held.entries if entry < toy.maskable]
            if len(kept) == toy.maskable:
                continue
            inputs = self.inputs(toy, received, len(kept))
            theta = min(self.score(inputs[entry]) for entry in kept)
            for entry in kept:
                gate = 1 / (1 + exp(theta - self.score(inputs[entry])))
                pull = (trained[entry] - received[entry]) * received[entry] * gate * (1 - gate) / sqrt(len(kept))
                for unit, value in enumerate(self.hidden(inputs[entry])):
                    outer_pull[unit] += pull * value
                    if value > 0:
                        bias_pull[unit] += pull * self.outer[unit]
                        for number, input in enumerate(inputs[entry]):
                            inner_pull[unit][number] += pull * self.outer[unit] * input
        step = self.rate / len(answers)
        for unit in range(len(self.inner)):
            self.outer[unit] += step * outer_pull[unit]
            self.inner_bias[unit] += step * bias_pull[unit]
            self.inner[unit] = [old + step * new for old, new in zip(self.inner[unit], inner_pull[unit], strict=True)]

    def state(self) -> dict[str, Vector]:
        inner = [value for row in self.inner for value in row]
        return {"score.inner": inner, "score.inner_bias": self.inner_bias, "score.outer": self.outer}


def deviation(values: Sequence[float], divisor: int) -> float:
    mean = sum(values) / len(values)
    return sqrt(sum((value - mean) ** 2 for value in values) / divisor)
