"""A client as loops over scalars: T steps of gradient descent on the entries that it holds, then its prototypes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .extraction import Held
from .objectives import Batch, Prototypes, Pulls
from .scalars import Image, Toy, Vector, backward, forward

Loss = Callable[[Batch], Pulls]
Samples = tuple[list[Image], list[int]]
"""Images and labels."""


@dataclass(frozen=True)
class Descent:
    """How weights follow gradients."""

    rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0


@dataclass(frozen=True)
class Trained:
    """What comes back: the full vector with the held entries trained, the mean loss, the local prototypes."""

    weights: Vector
    loss: float
    prototypes: Prototypes


def loss_and_gradient(
    toy: Toy,
    held: Held,
    seen: Vector,
    samples: Samples,
    own_classes: set[int],
    prototypes: Prototypes | None,
    loss: Loss,
) -> tuple[float, Vector]:
    """A batch's loss, and its gradient with respect to the weights that the network sees."""
    images, labels = samples
    passes = [forward(toy, seen, held.channels, held.depths, image) for image in images]
    pulls = loss(Batch(toy, seen, passes, labels, own_classes, prototypes))
    gradient = list(pulls.head) or [0.0] * toy.size
    for number, passed in enumerate(passes):
        features = pulls.features[number] if pulls.features else {}
        backward(toy, seen, passed, pulls.logits[number], features, gradient)
    return pulls.loss, gradient


def train(
    toy: Toy,
    held: Held,
    received: Vector,
    batches: Sequence[Samples],
    everything: Samples,
    prototypes: Prototypes | None,
    loss: Loss,
    descent: Descent,
    threshold: bool = False,
) -> Trained:
    """Train. With a threshold, FIARSE's: θ is the smallest maskable magnitude that was received.

    The network then sees w·1[|w| ≥ θ], and w follows 1[|w| ≥ θ]·g·(1 + 2θ|w| / (|w| + θ)²).
    """
    inside = set(held.entries)
    weights = [value if entry in inside else 0.0 for entry, value in enumerate(received)]
    masked = [entry for entry in held.entries if entry < toy.maskable]
    theta = min(abs(weights[entry]) for entry in masked) if threshold else 0.0
    own_classes = set(everything[1])
    velocity: Vector | None = None
    losses = []
    for batch in batches:
        seen = _seen(toy, weights, theta) if threshold else weights
        value, gradient = loss_and_gradient(toy, held, seen, batch, own_classes, prototypes, loss)
        losses.append(value)
        if threshold:
            for entry in masked:
                gradient[entry] *= threshold_factor(weights[entry], theta)
        velocity = _velocity(descent, held, weights, gradient, velocity)
        for entry in held.entries:
            weights[entry] -= descent.rate * velocity[entry]
    seen = _seen(toy, weights, theta) if threshold else weights
    local = class_means(toy, held, seen, everything)
    merged = [weights[entry] if entry in inside else value for entry, value in enumerate(received)]
    return Trained(merged, sum(losses) / len(losses), local)


def threshold_factor(weight: float, theta: float) -> float:
    """FIARSE's factor; plain descent where θ and the weight are both 0."""
    size = abs(weight)
    if size < theta:
        return 0.0
    return 1 + (2 * theta * size / (size + theta) ** 2 if size + theta > 0 else 0.0)


def _seen(toy: Toy, weights: Vector, theta: float) -> Vector:
    return [value if entry >= toy.maskable or abs(value) >= theta else 0.0 for entry, value in enumerate(weights)]


def _velocity(descent: Descent, held: Held, weights: Vector, gradient: Vector, before: Vector | None) -> Vector:
    """The gradient, its norm clipped; plus weight decay; plus what momentum keeps of the step before."""
    shrink = 1.0
    if descent.clip > 0:
        norm = math.sqrt(sum(gradient[entry] ** 2 for entry in held.entries))
        shrink = min(1.0, descent.clip / (norm + 1e-6))
    found = [shrink * slope + descent.weight_decay * weight for slope, weight in zip(gradient, weights, strict=True)]
    if before is not None:
        found = [descent.momentum * old + new for old, new in zip(before, found, strict=True)]
    return found


def class_means(toy: Toy, held: Held, weights: Vector, samples: Samples) -> Prototypes:
    """The mean feature of each class's samples; zeros where there is none."""
    depth = held.depths[-1]
    sums = [[0.0] * toy.widths[-1] for _ in range(toy.classes)]
    counts = [0] * toy.classes
    for image, label in zip(*samples, strict=True):
        counts[label] += 1
        for k, value in forward(toy, weights, held.channels, held.depths, image).features[depth].items():
            sums[label][k] += value
    means = [[value / max(count, 1) for value in row] for row, count in zip(sums, counts, strict=True)]
    return Prototypes(means, counts)
