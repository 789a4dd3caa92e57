"""Stage 1 and the merge as loops over scalars: how the server makes full vectors, and learns from trained ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .objectives import Prototypes
from .scalars import Vector

Matrix = list[Vector]


@dataclass(frozen=True)
class Returned:
    """One participant's answer: which entries count of it, what they were and what they are now."""

    client: int
    counted: frozenset[int]
    received: Vector
    trained: Vector

    def holds(self, entry: int) -> bool:
        return entry in self.counted

    def change(self, entry: int) -> float:
        return self.trained[entry] - self.received[entry] if entry in self.counted else 0.0


class Backbone(Protocol):
    """What the server has learned."""

    def full(self, client: int) -> Vector:
        """The full vector to be trained."""

    def in_use(self, client: int | None) -> Vector:
        """The full vector that is put to use by a client, or by nobody in particular."""

    def learn(self, returned: Sequence[Returned]) -> None:
        """Learn from a round, by client id."""

    def state(self) -> dict[str, Vector]:
        """Everything learned, by the names under which the server keeps it."""


@dataclass
class RunningAverage:
    """What is in use of a vector: the t-th round weighs 2/(t+1), and never less than the newest round should."""

    vector: Vector
    newest: float
    rounds: int = 0

    def follow(self, vector: Vector) -> None:
        self.rounds += 1
        share = 1.0 if self.newest == 1 else max(self.newest, 2 / (self.rounds + 1))
        self.vector = [old + share * (new - old) for old, new in zip(self.vector, vector, strict=True)]

    def state(self) -> dict[str, Vector]:
        return {} if self.newest == 1 else {"served.vector": self.vector, "served.rounds": [float(self.rounds)]}


@dataclass
class Shared:
    """One vector. Of each entry, the mean of the values that its holders have; what nobody held stays."""

    vector: Vector
    rate: float
    served: RunningAverage

    def full(self, client: int) -> Vector:
        return self.vector

    def in_use(self, client: int | None) -> Vector:
        return self.served.vector

    def learn(self, returned: Sequence[Returned]) -> None:
        following = list(self.vector)
        for entry, value in enumerate(self.vector):
            values = [one.trained[entry] for one in returned if one.holds(entry)]
            if values:
                following[entry] = value + self.rate * (sum(values) / len(values) - value)
        self.vector = following
        self.served.follow(self.vector)

    def state(self) -> dict[str, Vector]:
        return {"shared": self.vector, **self.served.state()}


@dataclass
class SharedWhereMoved(Shared):
    """FIARSE: w_j ← w_j − Σ_n δ_nj / #{n : δ_nj ≠ 0}, with δ the received less the trained."""

    def learn(self, returned: Sequence[Returned]) -> None:
        following = list(self.vector)
        for entry, value in enumerate(self.vector):
            moved = [-one.change(entry) for one in returned if one.change(entry) != 0]
            if moved:
                following[entry] = value - self.rate * sum(moved) / len(moved)
        self.vector = following
        self.served.follow(self.vector)


@dataclass
class Generated:
    """The hypernetwork w = b + W·f(v), f(v) = ReLU(A·v + a), less the same of the average v̄ where it is centred.

    With Δ_n = M_n ⊙ (trained − received), N participants and two rates ρ (shared) and β (personal):

        b ← b + ρ·mean_n Δ_n        W ← W + β/N·Σ_n Δ_n f_nᵀ
        q_n = Wᵀ Δ_n (W as it was)  A ← A + β/N·Σ_n [q_n ⊙ 1(h_n > 0)] v_nᵀ − the same at v̄        a likewise
    """

    inner: Matrix
    inner_bias: Vector
    head: Matrix
    head_bias: Vector
    descriptors: Matrix
    average: Vector
    centred: bool
    shared_rate: float
    personal_rate: float
    by_holders: bool
    strength: float
    served: RunningAverage

    def hidden(self, descriptor: Vector) -> Vector:
        """A·v + a, before the ReLU."""
        return [
            bias + sum(weight * value for weight, value in zip(row, descriptor, strict=True))
            for row, bias in zip(self.inner, self.inner_bias, strict=True)
        ]

    def features(self, descriptor: Vector) -> Vector:
        own = [max(0.0, value) for value in self.hidden(descriptor)]
        if not self.centred:
            return own
        middle = [max(0.0, value) for value in self.hidden(self.average)]
        return [one - other for one, other in zip(own, middle, strict=True)]

    def _vector(self, bias: Vector, features: Vector) -> Vector:
        return [
            start + sum(weight * value for weight, value in zip(row, features, strict=True))
            for start, row in zip(bias, self.head, strict=True)
        ]

    def full(self, client: int) -> Vector:
        return self._vector(self.head_bias, self.features(self.descriptors[client]))

    def in_use(self, client: int | None) -> Vector:
        middle = self.features(self.average)
        if client is None:
            return self._vector(self.served.vector, middle)
        own = self.features(self.descriptors[client])
        between = [self.strength * one + (1 - self.strength) * other for one, other in zip(own, middle, strict=True)]
        return self._vector(self.served.vector, between)

    def learn(self, returned: Sequence[Returned]) -> None:
        count = len(returned)
        step = self.personal_rate / count
        features = [self.features(self.descriptors[one.client]) for one in returned]
        changes = [[one.change(entry) for entry in range(len(self.head))] for one in returned]
        ranks = range(len(self.inner))
        pulls = [
            [sum(change[entry] * self.head[entry][rank] for entry in range(len(self.head))) for rank in ranks]
            for change in changes
        ]
        for entry, row in enumerate(self.head):
            for rank in ranks:
                row[rank] += step * sum(changes[n][entry] * features[n][rank] for n in range(count))
            among = sum(one.holds(entry) for one in returned) if self.by_holders else count
            self.head_bias[entry] += self.shared_rate * sum(change[entry] for change in changes) / max(among, 1)
        self._learn_below([self.descriptors[one.client] for one in returned], pulls, step)
        self.served.follow(self.head_bias)

    def _learn_below(self, descriptors: Matrix, pulls: Matrix, step: float) -> None:
        seen = [
            (descriptor, self.hidden(descriptor), pull) for descriptor, pull in zip(descriptors, pulls, strict=True)
        ]
        if self.centred:
            middle = self.hidden(self.average)
            seen += [(self.average, middle, [-value for value in pull]) for pull in pulls]
        for descriptor, hidden, pull in seen:
            for rank, value in enumerate(pull):
                if hidden[rank] > 0:
                    self.inner_bias[rank] += step * value
                    for dimension, input in enumerate(descriptor):
                        self.inner[rank][dimension] += step * value * input

    def state(self) -> dict[str, Vector]:
        return {
            "inner.weight": [value for row in self.inner for value in row],
            "inner.bias": self.inner_bias,
            "head.weight": [value for row in self.head for value in row],
            "head.bias": self.head_bias,
            **self.served.state(),
        }


def merged_prototypes(before: Prototypes, received: Sequence[Prototypes], weighted: bool) -> Prototypes:
    """P^c: the mean over those who hold class c, each once or by its samples; nobody holds it: it stays as it was."""
    vectors, counts = [list(row) for row in before.vectors], list(before.counts)
    for c in range(len(counts)):
        holders = [one for one in received if one.counts[c] > 0]
        if not holders:
            continue
        shares = [one.counts[c] if weighted else 1 for one in holders]
        for k in range(len(vectors[c])):
            total = sum(share * one.vectors[c][k] for share, one in zip(shares, holders, strict=True))
            vectors[c][k] = total / sum(shares)
        counts[c] = len(holders)
    return Prototypes(vectors, counts)
