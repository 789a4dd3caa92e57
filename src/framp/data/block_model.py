"""A generated graph: a degree-corrected stochastic block model with features, connected, of exact size."""

from collections.abc import Callable

import numpy as np

from framp.data.graph_set import GraphSet
from framp.errors import ConfigError
from framp.rng import NOBODY, stream
from framp.settings import SbmConfig

TAIL = 2.0  # exponent of the weights' Pareto distribution
HEAVIEST = 50.0  # times the lightest node's weight
ROUNDS = 50  # of drawing by weight, where a block or the whole may be nearly full

Draw = Callable[[int], tuple[np.ndarray, np.ndarray]]


def generate(config: SbmConfig) -> GraphSet:
    """Generate the graph that the settings describe; it depends on nothing else.

    Block b belongs to class b mod classes. A random tree connects the nodes; the share `within` of all edges joins
    nodes of one block, as far as blocks have room for it. Ends are drawn by the nodes' heavy-tailed weights. A node's
    features are its class's centre and normal noise.
    """
    _check(config)
    nodes, generator = config.nodes, _stream(config, "blocks")
    block = generator.permutation(np.arange(nodes) % config.blocks)
    weight = np.minimum((1 - generator.random(nodes)) ** (-1 / TAIL), HEAVIEST)
    structure = _Structure(block, weight)
    keys = _edges(config, structure, _stream(config, "edges"))
    ids = _stream(config, "order").permutation(nodes)  # early nodes of the tree have more neighbours
    edges = ids[np.stack(np.divmod(keys, nodes))]
    labels = np.empty(nodes, dtype=np.int64)
    labels[ids] = block % config.classes
    return GraphSet.from_edges("sbm", _features(config, labels), edges, labels, config.classes)


def _stream(config: SbmConfig, purpose: str) -> np.random.Generator:
    return stream(config.seed, NOBODY, NOBODY, f"block model/{purpose}")


def _check(config: SbmConfig) -> None:
    nodes, edges, blocks = config.nodes, config.edges, config.blocks
    most = max(nodes - 1, nodes * (nodes - 1) // 4)
    if blocks < config.classes:
        raise ConfigError(
            f"sbm.blocks is {blocks}, fewer than the {config.classes} classes; raise it or lower sbm.classes"
        )
    if blocks > nodes:
        raise ConfigError(f"sbm.blocks is {blocks}, more than the {nodes} nodes; lower it or raise sbm.nodes")
    if edges < nodes - 1:
        raise ConfigError(
            f"sbm.edges is {edges}, too few to connect {nodes} nodes; raise it to at least {nodes - 1} "
            "or lower sbm.nodes"
        )
    if edges > most:
        raise ConfigError(
            f"sbm.edges is {edges}, more than half of the pairs of {nodes} nodes; lower it to at most {most} "
            "or raise sbm.nodes"
        )


class _Structure:
    """Nodes sorted by block, and the running sums of their weights from which ends are drawn."""

    def __init__(self, block: np.ndarray, weight: np.ndarray) -> None:
        self.block = block
        self.order = np.argsort(block, kind="stable")
        self.place = np.empty_like(self.order)
        self.place[self.order] = np.arange(len(block))
        self.sums = np.concatenate([[0.0], np.cumsum(weight[self.order])])
        bounds = np.concatenate([[0], np.cumsum(np.bincount(block))])
        self.first, self.last = bounds[:-1][block], bounds[1:][block]  # of each node's block, as places
        self.arrival_sums = np.concatenate([[0.0], np.cumsum(weight)])

    def among(self, generator: np.random.Generator, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Draw a node by weight from the places low to high, for each pair of them."""
        drawn = self.sums[low] + generator.random(len(low)) * (self.sums[high] - self.sums[low])
        found: np.ndarray = self.order[np.clip(np.searchsorted(self.sums, drawn, side="right") - 1, low, high - 1)]
        return found

    def anybody(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Draw nodes by weight."""
        return self.among(generator, np.zeros(count, dtype=np.int64), np.full(count, len(self.block)))

    def tree(self, generator: np.random.Generator, within: float) -> tuple[np.ndarray, np.ndarray]:
        """Join each node but the first to an earlier one, by weight: of its own block with probability `within`."""
        child = np.arange(1, len(self.block))
        drawn = generator.random(len(child)) * self.arrival_sums[child]
        parent = np.minimum(np.searchsorted(self.arrival_sums, drawn, side="right") - 1, child - 1)
        inside = (generator.random(len(child)) < within) & (self.place[child] > self.first[child])
        own = child[inside]
        parent[inside] = self.among(generator, self.first[own], self.place[own])
        return parent, child


def _edges(config: SbmConfig, structure: _Structure, generator: np.random.Generator) -> np.ndarray:
    """Return the edges as smaller node times `nodes` plus larger node: all different, exactly as many as asked."""
    nodes, block = config.nodes, structure.block

    def inside(count: int) -> tuple[np.ndarray, np.ndarray]:
        one = structure.anybody(generator, count)
        return one, structure.among(generator, structure.first[one], structure.last[one])

    def across(count: int) -> tuple[np.ndarray, np.ndarray]:
        one, other = structure.anybody(generator, count), structure.anybody(generator, count)
        apart = block[one] != block[other]
        return one[apart], other[apart]

    def anywhere(count: int) -> tuple[np.ndarray, np.ndarray]:
        one, other = generator.integers(nodes, size=(2, count))
        return one, other

    one, other = structure.tree(generator, config.within)
    keys = _keys(nodes, one, other)
    same = block[one] == block[other]
    wanted = min(max(round(config.within * config.edges), int(same.sum())), config.edges - int((~same).sum()))
    within = _more(keys[same], wanted, nodes, inside, generator, ROUNDS)
    between = _more(keys[~same], config.edges - wanted, nodes, across, generator, ROUNDS)
    # at most half of all pairs are taken, so pairs drawn evenly are free often enough to end
    return _more(np.concatenate([within, between]), config.edges, nodes, anywhere, generator, None)


def _more(
    keys: np.ndarray, wanted: int, nodes: int, draw: Draw, generator: np.random.Generator, rounds: int | None
) -> np.ndarray:
    """Draw until there are as many different keys as wanted, or for some rounds."""
    keys = np.sort(keys)
    while len(keys) < wanted and rounds != 0:
        missing = wanted - len(keys)
        new = np.setdiff1d(_keys(nodes, *draw(missing + missing // 4 + 16)), keys)
        keys = np.union1d(keys, generator.permutation(new)[:missing])
        rounds = None if rounds is None else rounds - 1
    return keys


def _keys(nodes: int, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return one number for each pair of different nodes, whatever its direction."""
    keys: np.ndarray = (np.minimum(one, other) * nodes + np.maximum(one, other))[one != other]
    return keys


def _features(config: SbmConfig, labels: np.ndarray) -> np.ndarray:
    generator = _stream(config, "features")
    centres = generator.normal(0, config.signal, (config.classes, config.features)).astype(np.float32)
    features = generator.standard_normal((len(labels), config.features), dtype=np.float32)
    features += centres[labels]
    return features
