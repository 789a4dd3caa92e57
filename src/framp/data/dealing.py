"""The rules by which samples are dealt to clients; `partition` chooses one by name."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from framp.errors import ConfigError
from framp.settings import PartitionConfig

Shards = Sequence[np.ndarray]

#: How often the unbalanced deal is repeated in the hope of a fair one before samples are moved instead.
ATTEMPTS = 20


@dataclass(frozen=True, eq=False)
class Pool:
    """The samples of one split, to be dealt out, and the generator that decides."""

    labels: np.ndarray
    classes: int
    clients: int
    generator: np.random.Generator

    def __len__(self) -> int:
        return len(self.labels)

    def by_class(self) -> list[np.ndarray]:
        """Return the samples of each class in random order."""
        order = self.generator.permutation(len(self.labels))
        order = order[np.argsort(self.labels[order], kind="stable")]
        return np.split(order, np.cumsum(np.bincount(self.labels, minlength=self.classes))[:-1])


def log_dirichlet(generator: np.random.Generator, alpha: float, shape: tuple[int, int]) -> np.ndarray:
    """Draw rows from Dir(α·1) as logarithms, up to a constant a row.

    A gamma variable of shape α is one of shape α+1 times U^(1/α). As logarithms neither underflows, so a draw is
    sound at any α; the bounds of α are beyond anything that changes the draw.
    """
    alpha = min(max(alpha, 1e-100), 1e100)
    gamma = np.log(generator.standard_gamma(alpha + 1, shape))
    drawn: np.ndarray = gamma + np.log1p(-generator.random(shape)) / alpha
    return drawn


def dirichlet(train: Pool, test: Pool, config: PartitionConfig) -> tuple[Shards, Shards]:
    """Deal equal sizes ⌊N/n⌋ (train and test), each client's labels drawn from its own prior p_i ~ Dir(α·1_K)."""
    shape = (config.clients, train.classes)
    priors = log_dirichlet(train.generator, config.alpha, shape)
    test_priors = priors if config.test == "matched" else log_dirichlet(test.generator, config.alpha, shape)
    return _draw_equal(train, priors), _draw_equal(test, test_priors)


def _draw_equal(pool: Pool, log_priors: np.ndarray) -> Shards:
    """Let the clients, in a random order of turns, each draw a class from their prior and take a sample of it.

    To redraw whenever the class is exhausted, as the published rule does, may take 10^25 draws. A redraw from the
    prior without the exhausted classes has the same distribution and takes one.
    """
    size = len(pool) // pool.clients
    samples = [indices.tolist() for indices in pool.by_class()]
    everything = np.flatnonzero([len(indices) for indices in samples])
    alive = [everything.tolist()] * pool.clients
    cumulative = [_cumulative(log_priors[client, everything]) for client in range(pool.clients)]
    shards: list[list[int]] = [[] for _ in range(pool.clients)]
    turns = _turns(pool.generator, pool.clients, size)
    for client, first, second in zip(turns.tolist(), *pool.generator.random((2, len(turns))).tolist(), strict=True):
        label = alive[client][_draw(cumulative[client], first)]
        if not samples[label]:
            alive[client] = [label for label in alive[client] if samples[label]]
            cumulative[client] = _cumulative(log_priors[client, alive[client]])
            label = alive[client][_draw(cumulative[client], second)]
        shards[client].append(samples[label].pop())
    return [np.array(shard, dtype=np.int64) for shard in shards]


def _turns(generator: np.random.Generator, clients: int, size: int) -> np.ndarray:
    """Return the order of turns when each turn goes to any client, at random, that has not had `size` turns yet."""
    drawn = np.empty(0, dtype=np.int64)
    while True:
        drawn = np.concatenate([drawn, generator.integers(0, clients, size=2 * clients * size)])
        counts = np.bincount(drawn, minlength=clients)
        if counts.min() < size:
            continue
        by_client = np.argsort(drawn, kind="stable")
        earlier = np.arange(len(drawn)) - np.repeat(np.cumsum(counts) - counts, counts)
        turns: np.ndarray = drawn[np.sort(by_client[earlier < size])]
        return turns


def _cumulative(log_weights: np.ndarray) -> list[float]:
    cumulative: list[float] = np.cumsum(np.exp(log_weights - log_weights.max())).tolist()
    return cumulative


def _draw(cumulative: list[float], uniform: float) -> int:
    return min(bisect_right(cumulative, uniform * cumulative[-1]), len(cumulative) - 1)


def dirichlet_unbalanced(train: Pool, test: Pool, config: PartitionConfig) -> tuple[Shards, Shards]:
    """Cut each class by proportions q ~ Dir(α·1_n) over the clients; sizes differ.

    Matched test samples of a class are cut in the proportions of the training samples.
    """
    shards = _cut_unequal(train, config.alpha)
    if config.test != "matched":
        return shards, _cut_unequal(test, config.alpha)
    held = np.stack([np.bincount(train.labels[shard], minlength=train.classes) for shard in shards])
    sizes = held.sum(axis=1)
    parts: list[list[np.ndarray]] = [[] for _ in shards]
    for label, indices in enumerate(test.by_class()):
        weights = held[:, label] if held[:, label].any() else sizes
        cuts = np.cumsum(weights)[:-1] * len(indices) // weights.sum()
        for own, piece in zip(parts, np.split(indices, cuts), strict=True):
            own.append(piece)
    return shards, _level([np.concatenate(own) for own in parts], 1, test.labels, held)


def _cut_unequal(pool: Pool, alpha: float) -> Shards:
    """Cut class by class, passing over clients that already hold N/n samples.

    The published rule repeats this until the smallest client has K samples, which may never happen. Here half the
    mean size is enough where that is less than K, and after some attempts the poorest are given samples of the richest.
    """
    least = max(1, min(pool.classes, len(pool) // (2 * pool.clients)))
    for _ in range(ATTEMPTS):
        proportions = log_dirichlet(pool.generator, alpha, (pool.classes, pool.clients))
        parts: list[list[np.ndarray]] = [[] for _ in range(pool.clients)]
        sizes = np.zeros(pool.clients, dtype=np.int64)
        for indices, logarithms in zip(pool.by_class(), proportions, strict=True):
            if not len(indices):
                continue
            open_clients = np.flatnonzero(sizes * pool.clients < len(pool))
            cumulative = np.array(_cumulative(logarithms[open_clients]))
            cuts = (cumulative[:-1] / cumulative[-1] * len(indices)).astype(np.int64)
            for client, piece in zip(open_clients, np.split(indices, cuts), strict=True):
                parts[client].append(piece)
                sizes[client] += len(piece)
        if sizes.min() >= least:
            break
    nothing = [np.empty(0, dtype=np.int64)]
    shards = [np.concatenate(nothing + own) for own in parts]
    return _level(shards, least, pool.labels, np.zeros((pool.clients, pool.classes), dtype=np.int64))


def _level(shards: Shards, least: int, labels: np.ndarray, wanted: np.ndarray) -> Shards:
    """Move samples one by one from the richest to the poorest until everybody has `least`.

    The sample moved is one of the class that the poorest wants most.
    """
    held = [shard.tolist() for shard in shards]
    sizes = np.array([len(shard) for shard in held])
    while sizes.min() < least:
        poor, rich = int(sizes.argmin()), int(sizes.argmax())
        position = int(wanted[poor, labels[held[rich]]].argmax())
        held[poor].append(held[rich].pop(position))
        sizes[poor] += 1
        sizes[rich] -= 1
    return [np.array(shard, dtype=np.int64) for shard in held]


def iid(train: Pool, test: Pool, config: PartitionConfig) -> tuple[Shards, Shards]:
    """Cut a random permutation into parts whose sizes differ by at most one."""
    parts = [np.array_split(pool.generator.permutation(len(pool)), config.clients) for pool in (train, test)]
    return parts[0], parts[1]


def pathological(train: Pool, test: Pool, config: PartitionConfig) -> tuple[Shards, Shards]:
    """Give each client a fixed number of classes and deal the samples of a class evenly to its holders."""
    holdings = _assign_classes(train, config.classes_per_client)
    test_holdings = holdings if config.test == "matched" else _assign_classes(test, config.classes_per_client)
    return _deal_classes(train, holdings), _deal_classes(test, test_holdings)


def _assign_classes(pool: Pool, each: int) -> np.ndarray:
    """Return who holds which class, bool [clients, classes]; numbers of holders differ by at most one."""
    present = np.flatnonzero(np.bincount(pool.labels, minlength=pool.classes))
    if each > len(present):
        raise ConfigError(
            f"partition.classes_per_client is {each}, more than the {len(present)} classes of the set; "
            f"lower it to at most {len(present)}"
        )
    holdings = np.zeros((pool.clients, pool.classes), dtype=bool)
    for client in range(pool.clients):
        holders = holdings[:, present].sum(axis=0)
        fewest = np.lexsort((pool.generator.random(len(present)), holders))
        holdings[client, present[fewest[:each]]] = True
    return holdings


def _deal_classes(pool: Pool, holdings: np.ndarray) -> Shards:
    parts: list[list[np.ndarray]] = [[np.empty(0, dtype=np.int64)] for _ in range(pool.clients)]
    for label, indices in enumerate(pool.by_class()):
        holders = pool.generator.permutation(np.flatnonzero(holdings[:, label]))
        if len(holders):
            for client, piece in zip(holders, np.array_split(indices, len(holders)), strict=True):
                parts[client].append(piece)
    return [np.concatenate(own) for own in parts]


KINDS: dict[str, Callable[[Pool, Pool, PartitionConfig], tuple[Shards, Shards]]] = {
    "dirichlet": dirichlet,
    "dirichlet-unbalanced": dirichlet_unbalanced,
    "iid": iid,
    "pathological": pathological,
}
