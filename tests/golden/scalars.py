"""A toy network as loops over Python floats: forward, and a backward pass derived by hand.

The network, for an image x[c][p] of a few channels c and pixels p, has a few units, each a 1×1 convolution with ReLU:

    z^l[o][p] = b^l[o] + Σ_i W^l[o][i]·a^(l-1)[i][p],   a^l = max(0, z^l),   a^0 = x

then f[k] = g[k]·mean_p a^L[k][p], and the logits y[c] = b[c] + Σ_k V[c][k]·f[k]. In the form with exits there is no g,
and the mean after each earlier unit has a linear layer of its own.

All parameters lie in one list: units (weight, bias), output layer (weight, bias), exits (weight, bias), then g.
A smaller network is given by the channels that it keeps of each unit, and by the depths at which it has exits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

Vector = list[float]
Channels = list[list[int]]
"""The channels that a network keeps of each unit."""
Image = list[list[float]]
"""[channel][pixel]."""


@dataclass(frozen=True)
class Toy:
    """The shape of the full network, and where each of its parameters lies."""

    inputs: int
    widths: tuple[int, ...]
    classes: int
    exits: bool

    @property
    def depth(self) -> int:
        return len(self.widths)

    @property
    def tensors(self) -> list[tuple[str, int]]:
        """The maskable tensors and their sizes, in their order."""
        found = []
        before = self.inputs
        for unit, width in enumerate(self.widths, start=1):
            found += [(f"unit {unit} weight", width * before), (f"unit {unit} bias", width)]
            before = width
        found += [("output weight", self.classes * before), ("output bias", self.classes)]
        for depth, width in enumerate(self.widths[:-1], start=1):
            if self.exits:
                found += [(f"exit {depth} weight", self.classes * width), (f"exit {depth} bias", self.classes)]
        return found

    @cached_property
    def _starts(self) -> dict[str, int]:
        sizes = [size for _, size in self.tensors]
        return {name: sum(sizes[:number]) for number, (name, _) in enumerate(self.tensors)}

    def start(self, tensor: str) -> int:
        return self._starts[tensor]

    @cached_property
    def maskable(self) -> int:
        return sum(size for _, size in self.tensors)

    @property
    def size(self) -> int:
        return self.maskable + (0 if self.exits else self.widths[-1])

    def cost(self, tensor: str, pixels: int) -> int:
        """How many multiply-adds one entry of a tensor takes part in, for an image of some pixels."""
        if tensor.endswith("bias"):
            return 0
        return pixels if tensor.startswith("unit") else 1

    def before(self, unit: int) -> int:
        return self.inputs if unit == 1 else self.widths[unit - 2]

    def weight(self, unit: int, output: int, input: int) -> int:
        return self.start(f"unit {unit} weight") + output * self.before(unit) + input

    def bias(self, unit: int, output: int) -> int:
        return self.start(f"unit {unit} bias") + output

    def _exit(self, depth: int) -> str:
        return "output" if depth == self.depth else f"exit {depth}"

    def row(self, depth: int, of_class: int, channel: int) -> int:
        """The place of V[class][channel] of the exit after some unit."""
        return self.start(f"{self._exit(depth)} weight") + of_class * self.widths[depth - 1] + channel

    def row_bias(self, depth: int, of_class: int) -> int:
        return self.start(f"{self._exit(depth)} bias") + of_class

    def gain(self, channel: int) -> int:
        return self.maskable + channel

    def everything(self) -> Channels:
        return [list(range(width)) for width in self.widths]

    def entries(self, channels: Channels, depths: Sequence[int]) -> list[int]:
        """The entries of a smaller network, ascending."""
        found = []
        before = list(range(self.inputs))
        for unit in range(1, depths[-1] + 1):
            kept = channels[unit - 1]
            found += [self.weight(unit, output, input) for output, input in product(kept, before)]
            found += [self.bias(unit, output) for output in kept]
            before = kept
        for depth in depths:
            found += [self.row(depth, c, k) for c, k in product(range(self.classes), channels[depth - 1])]
            found += [self.row_bias(depth, c) for c in range(self.classes)]
        if not self.exits:
            found += [self.gain(channel) for channel in channels[-1]]
        return sorted(found)

    def class_of(self, entry: int) -> int | None:
        """The class whose row of the last output layer an entry belongs to."""
        for c in range(self.classes):
            row = [self.row(self.depth, c, k) for k in range(self.widths[-1])]
            if entry in row or entry == self.row_bias(self.depth, c):
                return c
        return None


@dataclass(frozen=True)
class Pass:
    """What a forward pass of one image leaves behind."""

    maps: list[dict[int, list[float]]]
    """a^0, a^1, ...: [channel][pixel]."""
    features: dict[int, dict[int, float]]
    """Of each exit's depth: [channel]."""
    logits: dict[int, list[float]]
    """Of each exit's depth: [class]."""


def head(toy: Toy, weights: Vector, depth: int, features: dict[int, float]) -> list[float]:
    """The logits of the exit after some unit."""
    return [
        weights[toy.row_bias(depth, c)] + sum(weights[toy.row(depth, c, k)] * value for k, value in features.items())
        for c in range(toy.classes)
    ]


def forward(toy: Toy, weights: Vector, channels: Channels, depths: Sequence[int], image: Image) -> Pass:
    """Pass one image through a network."""
    maps = [dict(enumerate(image))]
    features: dict[int, dict[int, float]] = {}
    pixels = range(len(image[0]))
    for unit in range(1, depths[-1] + 1):
        below = maps[-1]
        here: dict[int, list[float]] = {}
        for output in channels[unit - 1]:
            here[output] = []
            for pixel in pixels:
                z = weights[toy.bias(unit, output)]
                for input, values in below.items():
                    z += weights[toy.weight(unit, output, input)] * values[pixel]
                here[output].append(max(0.0, z))
        maps.append(here)
        if unit in depths:
            features[unit] = {k: sum(values) / len(values) for k, values in here.items()}
            if not toy.exits:
                features[unit] = {k: weights[toy.gain(k)] * value for k, value in features[unit].items()}
    return Pass(maps, features, {depth: head(toy, weights, depth, found) for depth, found in features.items()})


def head_backward(
    toy: Toy, weights: Vector, depth: int, features: dict[int, float], pull: list[float], gradient: Vector
) -> dict[int, float]:
    """Add an exit's gradient, given ∂L/∂y; return ∂L/∂f."""
    for c in range(toy.classes):
        gradient[toy.row_bias(depth, c)] += pull[c]
        for k, value in features.items():
            gradient[toy.row(depth, c, k)] += pull[c] * value
    return {k: sum(pull[c] * weights[toy.row(depth, c, k)] for c in range(toy.classes)) for k in features}


def backward(
    toy: Toy,
    weights: Vector,
    passed: Pass,
    logit_pulls: dict[int, list[float]],
    feature_pull: dict[int, float],
    gradient: Vector,
) -> None:
    """Add one image's gradient, given ∂L/∂y of each exit and what else pulls at the last exit's features."""
    deepest = max(passed.logits)
    pixels = range(len(passed.maps[0][0]))
    above: dict[int, list[float]] = {k: [0.0] * len(pixels) for k in passed.maps[deepest]}  # ∂L/∂a of the unit
    for unit in range(deepest, 0, -1):
        here, below = passed.maps[unit], passed.maps[unit - 1]
        if unit in logit_pulls:
            pulls = head_backward(toy, weights, unit, passed.features[unit], logit_pulls[unit], gradient)
            for k, values in here.items():
                pull = pulls[k] + (feature_pull.get(k, 0.0) if unit == deepest else 0.0)
                if not toy.exits:
                    gradient[toy.gain(k)] += pull * sum(values) / len(values)
                    pull *= weights[toy.gain(k)]
                for pixel in pixels:
                    above[k][pixel] += pull / len(values)
        following = {input: [0.0] * len(pixels) for input in below}
        for output, values in here.items():
            for pixel in pixels:
                z_pull = above[output][pixel] if values[pixel] > 0 else 0.0
                gradient[toy.bias(unit, output)] += z_pull
                for input in below:
                    gradient[toy.weight(unit, output, input)] += z_pull * below[input][pixel]
                    following[input][pixel] += z_pull * weights[toy.weight(unit, output, input)]
        above = following


def softmax(logits: Sequence[float]) -> list[float]:
    largest = max(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    return [power / sum(powers) for power in powers]


def cross_entropy(logits: Sequence[float], label: int) -> tuple[float, list[float]]:
    """−log p[label], and its gradient p − 1[label]."""
    p = softmax(logits)
    return -math.log(p[label]), [p[c] - (1.0 if c == label else 0.0) for c in range(len(p))]
