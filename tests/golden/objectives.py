"""Stage 3 as loops over scalars: each objective's loss of a batch, and how it pulls at logits, features and head."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .scalars import Pass, Toy, Vector, cross_entropy, head, head_backward, softmax


@dataclass
class Pulls:
    """A loss, and its gradient: of each sample's logits at each exit, of its features, of the head itself."""

    loss: float
    logits: list[dict[int, list[float]]]
    features: list[dict[int, float]] = field(default_factory=list)
    head: Vector = field(default_factory=list)


@dataclass(frozen=True)
class Prototypes:
    """[class][feature], and by how many samples or holders; 0: there is none."""

    vectors: list[Vector]
    counts: list[int]


@dataclass(frozen=True)
class Batch:
    """What an objective sees of a batch."""

    toy: Toy
    weights: Vector
    passes: list[Pass]
    labels: list[int]
    own_classes: set[int]
    prototypes: Prototypes | None

    @property
    def last(self) -> int:
        return max(self.passes[0].logits)


def plain(batch: Batch) -> Pulls:
    """Mean cross-entropy."""
    count = len(batch.labels)
    loss, pulls = 0.0, []
    for passed, label in zip(batch.passes, batch.labels, strict=True):
        own, pull = cross_entropy(passed.logits[batch.last], label)
        loss += own / count
        pulls.append({batch.last: [value / count for value in pull]})
    return Pulls(loss, pulls)


def label_masked(batch: Batch) -> Pulls:
    """Mean cross-entropy with the logits of foreign classes set to 0, which so get no gradient."""
    count = len(batch.labels)
    loss, pulls = 0.0, []
    for passed, label in zip(batch.passes, batch.labels, strict=True):
        logits = [value if c in batch.own_classes else 0.0 for c, value in enumerate(passed.logits[batch.last])]
        own, pull = cross_entropy(logits, label)
        loss += own / count
        pulls.append({batch.last: [value / count if c in batch.own_classes else 0.0 for c, value in enumerate(pull)]})
    return Pulls(loss, pulls)


def aligned(batch: Batch, weight: float, distance: str, reduction: str) -> Pulls:
    """Mean cross-entropy + λ·L_R, from when there are prototypes."""
    found = plain(batch)
    if batch.prototypes is not None and distance == "head":
        _align_head(batch, batch.prototypes, weight, reduction, found)
    elif batch.prototypes is not None:
        _align_features(batch, batch.prototypes, weight, distance, reduction, found)
    return found


def _align_head(batch: Batch, prototypes: Prototypes, weight: float, reduction: str, found: Pulls) -> None:
    """L_R = mean_c CE(head(P^c), c) over the classes that have a global prototype."""
    classes = [c for c, count in enumerate(prototypes.counts) if count > 0]
    share = weight / (len(classes) if reduction == "mean" else 1)
    found.head = [0.0] * batch.toy.size
    for c in classes:
        features = dict(enumerate(prototypes.vectors[c]))
        loss, pull = cross_entropy(head(batch.toy, batch.weights, batch.last, features), c)
        found.loss += share * loss
        head_backward(batch.toy, batch.weights, batch.last, features, [share * value for value in pull], found.head)


def _align_features(
    batch: Batch, prototypes: Prototypes, weight: float, distance: str, reduction: str, found: Pulls
) -> None:
    """L_R = mean_c dist(P_b^c, P^c) over the classes that the batch has and that have a global prototype."""
    found.features = [{} for _ in batch.labels]
    both = [c for c in sorted(set(batch.labels)) if prototypes.counts[c] > 0]
    for c in both:
        share = weight / (len(both) if reduction == "mean" else 1)
        members = [number for number, label in enumerate(batch.labels) if label == c]
        width = len(prototypes.vectors[c])
        gaps = []
        for k in range(width):
            mean = sum(batch.passes[number].features[batch.last][k] for number in members) / len(members)
            gaps.append(mean - prototypes.vectors[c][k])
        squared = sum(gap * gap for gap in gaps)
        if distance == "mse":
            value, slopes = squared / width, [2 * gap / width for gap in gaps]
        elif distance == "squared":
            value, slopes = squared, [2 * gap for gap in gaps]
        else:
            value = math.sqrt(squared + 1e-12)
            slopes = [gap / value for gap in gaps]
        found.loss += share * value
        for number in members:
            found.features[number] = {k: share * slope / len(members) for k, slope in enumerate(slopes)}


def exits(batch: Batch, weight: float, temperature: float, distils: bool, as_in_code: bool) -> Pulls:
    """L = [ Σ_{j<e} j·(CE_j + λ·T²·KL(softmax(z_e/T) ‖ softmax(z_j/T))) + e·CE_e ] / (e(e+1)/2)."""
    count, depths = len(batch.labels), sorted(batch.passes[0].logits)
    e = len(depths)
    loss, pulls = 0.0, []
    for passed, label in zip(batch.passes, batch.labels, strict=True):
        own: dict[int, list[float]] = {depth: [0.0] * batch.toy.classes for depth in depths}
        for j, depth in enumerate(depths, start=1):
            share = j / (e * (e + 1) / 2) / count
            value, pull = cross_entropy(passed.logits[depth], label)
            loss += share * value
            own[depth] = [old + share * new for old, new in zip(own[depth], pull, strict=True)]
            if j == e or not distils:
                continue
            share *= weight / (batch.toy.classes if as_in_code else 1)
            value, to_student, to_teacher = distillation(passed.logits[depth], passed.logits[depths[-1]], temperature)
            loss += share * value
            own[depth] = [old + share * new for old, new in zip(own[depth], to_student, strict=True)]
            if as_in_code:
                teacher = own[depths[-1]]
                own[depths[-1]] = [old + share * new for old, new in zip(teacher, to_teacher, strict=True)]
        pulls.append(own)
    return Pulls(loss, pulls)


def distillation(
    student: Sequence[float], teacher: Sequence[float], temperature: float
) -> tuple[float, list[float], list[float]]:
    """T²·KL(p ‖ q) of softened predictions p (teacher) and q, with its gradients T·(q − p) and T·p·(log p/q − KL)."""
    p, q = (softmax([logit / temperature for logit in logits]) for logits in (teacher, student))
    logs = [math.log(a / b) for a, b in zip(p, q, strict=True)]
    divergence = sum(a * log for a, log in zip(p, logs, strict=True))
    to_student = [temperature * (b - a) for a, b in zip(p, q, strict=True)]
    to_teacher = [temperature * a * (log - divergence) for a, log in zip(p, logs, strict=True)]
    return temperature**2 * divergence, to_student, to_teacher
