"""How long a partition takes: at the size of CIFAR-100, where it takes longest, and of a graph as large as arxiv."""

import time
from statistics import median

import numpy as np

from benchmarks.timing import Figure
from framp.data import partition
from framp.data.block_model import generate
from framp.data.cutting import cut
from framp.settings import PartitionConfig, SbmConfig

CLASSES = 100
ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def seconds(train: np.ndarray, test: np.ndarray, config: PartitionConfig, turns: int = 3) -> float:
    """Return the median time of dealing both splits out."""
    found = []
    for _ in range(turns):
        started = time.perf_counter()
        partition(train, test, CLASSES, config)
        found.append(time.perf_counter() - started)
    return median(found)


def figures() -> list[Figure]:
    """Measure each kind of partition with 100 clients: of 50,000 samples in 100 classes, and of a large graph."""
    train, test = np.repeat(np.arange(CLASSES), 500), np.repeat(np.arange(CLASSES), 100)
    made = []
    for kind in ("dirichlet", "dirichlet-unbalanced", "iid", "pathological"):
        alphas = ALPHAS if kind.startswith("dirichlet") else (0.3,)
        took = {
            (alpha, split): seconds(train, test, PartitionConfig(clients=100, kind=kind, alpha=alpha, test=split))
            for alpha in alphas
            for split in ("matched", "independent")
        }
        (alpha, split), longest = max(took.items(), key=lambda item: item[1])
        detail = f"longest at α = {alpha:g}, {split}" if len(alphas) > 1 else f"longest with {split} test parts"
        made.append(Figure(f"seconds of a partition, {kind}", longest, 5.0, detail))
    return [*made, metis()]


def metis(turns: int = 3) -> Figure:
    """Measure METIS, with all that a partition counts, on a graph of the size of ogbn-arxiv."""
    graph = generate(SbmConfig(nodes=169_343, edges=1_166_243, features=1, classes=40, blocks=400))
    config = PartitionConfig(clients=100, kind="metis")
    found = []
    for _ in range(turns):
        started = time.perf_counter()
        shards = cut(graph, config)
        found.append(time.perf_counter() - started)
    share = shards.total_cut / shards.total_edges
    return Figure("seconds of METIS, arxiv-size graph, 100 parts", median(found), 15.0, f"{share:.0%} of the edges cut")
