"""The descriptors as loops over scalars: the feature extractor φ, its training, and how features are standardised.

φ is three times a 3×3 convolution with padding 1, ReLU and 2×2 maximum (a last odd row or column alone), then the mean
over the pixels. Under a linear classifier it is trained by gradient descent on cross-entropy.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .scalars import Vector, cross_entropy

Maps = list[list[Vector]]
"""[channel][row][column]."""


@dataclass(frozen=True)
class Extractor:
    """Where each parameter lies: of each convolution weight[o][i][3][3] and bias[o], then of the linear layer."""

    channels: tuple[int, ...]
    classes: int

    def layers(self) -> Iterator[tuple[int, int, int]]:
        """The place where each convolution begins, its inputs and its outputs."""
        place = 0
        for inputs, outputs in zip(self.channels, self.channels[1:], strict=False):
            yield place, inputs, outputs
            place += outputs * inputs * 9 + outputs

    @property
    def classifier(self) -> int:
        return sum(outputs * inputs * 9 + outputs for _, inputs, outputs in self.layers())


def taps(height: int, width: int) -> list[tuple[int, int, int, int, int]]:
    """Of a 3×3 convolution with padding: output row and column, input row and column, place in the kernel."""
    return [
        (row, column, row + down - 1, column + right - 1, 3 * down + right)
        for row in range(height)
        for column in range(width)
        for down in range(3)
        for right in range(3)
        if 0 <= row + down - 1 < height and 0 <= column + right - 1 < width
    ]


def convolve(weights: Vector, start: int, outputs: int, maps: Maps) -> Maps:
    """A convolution and ReLU."""
    inputs, height, width = len(maps), len(maps[0]), len(maps[0][0])
    biases = start + outputs * inputs * 9
    found = [[[weights[biases + output]] * width for _ in range(height)] for output in range(outputs)]
    for row, column, below, left, tap in taps(height, width):
        for output in range(outputs):
            for input in range(inputs):
                weight = weights[start + (output * inputs + input) * 9 + tap]
                found[output][row][column] += weight * maps[input][below][left]
    return [[[max(0.0, value) for value in row] for row in channel] for channel in found]


def windows(height: int, width: int) -> list[list[list[tuple[int, int]]]]:
    """The pixels of each 2×2 window."""
    return [
        [
            [(r, c) for r in range(row, min(row + 2, height)) for c in range(column, min(column + 2, width))]
            for column in range(0, width, 2)
        ]
        for row in range(0, height, 2)
    ]


def pool(maps: Maps) -> Maps:
    grid = windows(len(maps[0]), len(maps[0][0]))
    return [[[max(channel[r][c] for r, c in window) for window in row] for row in grid] for channel in maps]


def forward(extractor: Extractor, weights: Vector, image: Maps) -> tuple[Vector, list[tuple[Maps, Maps]]]:
    """Return φ(x), and of each layer its input and its output before pooling."""
    maps, kept = image, []
    for start, _, outputs in extractor.layers():
        active = convolve(weights, start, outputs, maps)
        kept.append((maps, active))
        maps = pool(active)
    pixels = len(maps[0]) * len(maps[0][0])
    return [sum(map(sum, channel)) / pixels for channel in maps], kept


def backward(
    extractor: Extractor, weights: Vector, kept: list[tuple[Maps, Maps]], feature_pull: Vector, gradient: Vector
) -> None:
    """Add φ's gradient, given ∂L/∂φ(x)."""
    last = kept[-1][1]
    grid = windows(len(last[0]), len(last[0][0]))
    pixels = len(grid) * len(grid[0])
    above = [[[pull / pixels for _ in row] for row in grid] for pull in feature_pull]
    for (start, inputs, outputs), (maps, active) in zip(reversed(list(extractor.layers())), kept[::-1], strict=True):
        height, width = len(maps[0]), len(maps[0][0])
        pulls = [[[0.0] * width for _ in range(height)] for _ in range(outputs)]  # ∂L/∂z
        for output, channel in enumerate(active):
            for y, row in enumerate(windows(height, width)):
                for x, window in enumerate(row):
                    r, c = max(window, key=lambda pixel: channel[pixel[0]][pixel[1]])
                    if channel[r][c] > 0:
                        pulls[output][r][c] += above[output][y][x]
        above = [[[0.0] * width for _ in range(height)] for _ in range(inputs)]
        for output in range(outputs):
            gradient[start + outputs * inputs * 9 + output] += sum(map(sum, pulls[output]))
        for row_, column, below, left, tap in taps(height, width):
            for output in range(outputs):
                pull = pulls[output][row_][column]
                if pull == 0:
                    continue
                for input in range(inputs):
                    place = start + (output * inputs + input) * 9 + tap
                    gradient[place] += pull * maps[input][below][left]
                    above[input][below][left] += pull * weights[place]


def train(
    extractor: Extractor, weights: Vector, batches: Sequence[tuple[list[Maps], list[int]]], rate: float
) -> Vector:
    """Train φ and its classifier by one step a batch; return their parameters."""
    weights = list(weights)
    width = extractor.channels[-1]
    for images, labels in batches:
        gradient = [0.0] * len(weights)
        for image, label in zip(images, labels, strict=True):
            features, kept = forward(extractor, weights, image)
            rows = extractor.classifier
            biases = rows + extractor.classes * width
            logits = [
                weights[biases + c] + sum(weights[rows + c * width + k] * value for k, value in enumerate(features))
                for c in range(extractor.classes)
            ]
            _, pull = cross_entropy(logits, label)
            feature_pull = [0.0] * width
            for c, value in enumerate(pull):
                value /= len(labels)
                gradient[biases + c] += value
                for k, feature in enumerate(features):
                    gradient[rows + c * width + k] += value * feature
                    feature_pull[k] += value * weights[rows + c * width + k]
            backward(extractor, weights, kept, feature_pull, gradient)
        weights = [weight - rate * slope for weight, slope in zip(weights, gradient, strict=True)]
    return weights


def mean_features(extractor: Extractor, weights: Vector, images: Sequence[Maps]) -> Vector:
    """v = mean of φ(x) over a client's images."""
    found = [forward(extractor, weights, image)[0] for image in images]
    return [sum(values) / len(found) for values in zip(*found, strict=True)]


def standardised(raw: Sequence[Vector]) -> list[Vector]:
    """(v − mean)/deviation of each dimension over the clients, cut at ±5."""
    columns = []
    for values in zip(*raw, strict=True):
        mean = sum(values) / len(values)
        deviation = max(math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)), 1e-8)
        columns.append([min(5.0, max(-5.0, (value - mean) / deviation)) for value in values])
    return [list(row) for row in zip(*columns, strict=True)]
