"""Who holds which samples: a pure function of the labels and the partition's settings."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from framp.data import cuts
from framp.data.dealing import KINDS, Pool, Shards
from framp.errors import ConfigError, DataError, listed, unknown
from framp.rng import NOBODY, stream
from framp.settings import PartitionConfig


@dataclass(frozen=True, eq=False)
class Partition:
    """For each client, the indices int64 of its training and of its test samples."""

    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]
    sha256: str

    def edges(self) -> dict[str, int]:
        """Return how many edges of a graph there are and how many lie between clients; nothing where is none."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return sizes and hashes as plain values, for `partition.json`."""
        clients = [
            {"id": client, "train": len(held[0]), "test": len(held[1]), "sha256": _client_hash(held)}
            for client, held in enumerate(self._held())
        ]
        return {"schema": 1, "sha256": self.sha256, "clients": clients}

    def _held(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Return what each client holds: all that its hash covers."""
        return zip(self.train, self.test, strict=True)


def partition(train_labels: np.ndarray, test_labels: np.ndarray, classes: int, config: PartitionConfig) -> Partition:
    """Deal the samples to the clients.

    The training part is the same for matched and independent test parts: each part draws from its own stream.
    """
    if config.kind in cuts.KINDS:
        raise ConfigError(f"partition.kind '{config.kind}' cuts graphs; images are dealt out by {listed(KINDS, 'or')}")
    if config.kind not in KINDS:
        raise ConfigError(unknown("value for partition.kind", config.kind, KINDS))
    pools = []
    for part, labels in (("train", train_labels), ("test", test_labels)):
        if len(labels) < config.clients:
            raise DataError(
                f"the {part} split has {len(labels)} samples for {config.clients} clients; "
                f"lower partition.clients to at most {len(labels)} or use a larger set"
            )
        generator = stream(config.seed, NOBODY, NOBODY, f"partition/{part}")
        pools.append(Pool(np.asarray(labels, dtype=np.int64), classes, config.clients, generator))
    parts = KINDS[config.kind](pools[0], pools[1], config)
    train, test = (_finished(shards, pool) for shards, pool in zip(parts, pools, strict=True))
    for part, shards in (("train", train), ("test", test)):
        for client, shard in enumerate(shards):
            if not len(shard):
                raise DataError(
                    f"client {client} is left without {part} samples by partition.kind '{config.kind}'; "
                    "lower partition.clients or use a larger set"
                )
    return Partition(train, test, hash_of_all(zip(train, test, strict=True)))


def hash_of_all(held: Iterable[tuple[np.ndarray, ...]]) -> str:
    """Hash what each client holds, client by client."""
    digest = hashlib.sha256()
    for own in held:
        digest.update(bytes.fromhex(_client_hash(own)))
    return digest.hexdigest()


def label_counts(labels: np.ndarray, shards: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """Count each client's samples of each class: int64 [clients, classes]."""
    return np.stack([np.bincount(labels[shard], minlength=classes) for shard in shards])


def prior_overlap(train_counts: np.ndarray, test_counts: np.ndarray) -> np.ndarray:
    """Return Σ_c min(p_train, p_test) for each client: 1 if the label distributions agree, 0 if disjoint."""
    train, test = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1) for counts in (train_counts, test_counts))
    overlap: np.ndarray = np.minimum(train, test).sum(axis=1)
    return overlap


def _finished(shards: Shards, pool: Pool) -> tuple[np.ndarray, ...]:
    """Shuffle each shard: batches taken in order should mix classes, whatever the order of the set or of the deal."""
    return tuple(pool.generator.permutation(np.asarray(shard, dtype=np.int64)) for shard in shards)


def _client_hash(held: tuple[np.ndarray, ...]) -> str:
    digest = hashlib.sha256("/".join(str(len(indices)) for indices in held).encode())
    for indices in held:
        digest.update(indices.astype("<i8").tobytes())
    return digest.hexdigest()
