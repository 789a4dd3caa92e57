"""How long a partition takes at the size of CIFAR-100, at the concentration where it takes longest."""

import time
from statistics import median

import numpy as np

from benchmarks.timing import Figure
from framp.data import partition
from framp.settings import PartitionConfig

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
    """Measure each kind of partition with 50,000 samples, 100 classes and 100 clients."""
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
    return made
