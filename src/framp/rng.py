"""All randomness of the project: stateless streams named by what they are for.

A stream depends on (seed, round, client, purpose) and on nothing else, so a resumed run, a client that
dropped out or another order of work never shifts anybody else's numbers.
"""

import hashlib

import numpy as np
import torch


def _digest(seed: int, round: int, client: int, purpose: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{round}/{client}/{purpose}".encode(), digest_size=16).digest()


def stream(seed: int, round: int, client: int, purpose: str) -> np.random.Generator:
    """Return the generator for one purpose of one client in one round."""
    key = int.from_bytes(_digest(seed, round, client, purpose), "little")
    return np.random.Generator(np.random.Philox(key=key))


def number(seed: int, round: int, client: int, purpose: str) -> int:
    """Return one 63-bit number from the stream: a seed for torch, or a token that names a task."""
    return int.from_bytes(_digest(seed, round, client, purpose)[:8], "little") >> 1


def torch_generator(seed: int, round: int, client: int, purpose: str) -> torch.Generator:
    """Return the same stream as a torch generator, for sampling straight into tensors."""
    return torch.Generator().manual_seed(number(seed, round, client, purpose))


#: For streams that belong to no round or to no client (the initial network, the sampling of clients).
NOBODY = -1
