"""One thread for what has to give the same bits everywhere: the number of threads would show in the last of them."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch work on one thread, then on as many as before: they are the caller's."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
