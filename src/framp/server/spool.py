"""Vectors that wait until the round is over: in memory while they are small, beyond that in an unnamed file."""

import contextlib
import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
import torch
from torch import Tensor

from framp.errors import FrampError


class Spool:
    """Keeps tensors up to a number of bytes in memory and the rest on disk; read by ranges, gone when closed."""

    def __init__(self, memory: int) -> None:
        self._room = memory
        self._file: IO[bytes] | None = None

    def keep(self, tensor: Tensor) -> "InMemory | OnDisk":
        """Take a tensor over."""
        if tensor.nbytes <= self._room:
            self._room -= tensor.nbytes
            return InMemory(tensor)
        array = tensor.contiguous().numpy()
        with _explained():
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the spool)
            offset = self._file.seek(0, 2)
            self._file.write(array.data)
            self._file.flush()
        return OnDisk(self._file, offset, len(array), array.dtype)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


class InMemory:
    """A tensor kept as it is."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __len__(self) -> int:
        return self._tensor.numel()

    def read(self, start: int, stop: int) -> Tensor:
        """Return a range of it."""
        return self._tensor[start:stop]


class OnDisk:
    """A tensor in a file."""

    def __init__(self, file: IO[bytes], offset: int, length: int, dtype: np.dtype) -> None:
        self._file, self._offset, self._length, self._dtype = file, offset, length, dtype

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, stop: int) -> Tensor:
        """Read a range of it."""
        self._file.seek(self._offset + start * self._dtype.itemsize)
        return torch.from_numpy(np.fromfile(self._file, dtype=self._dtype, count=stop - start))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Say which folder refuses to take more, and what to do."""
    try:
        yield
    except OSError as error:
        raise FrampError(
            f"cannot keep a round's updates in the temporary folder {tempfile.tempdir or ''}: {error.strerror}; free "
            "some space there, set TMPDIR to another folder or raise engine.inbox_bytes, then go on with "
            "`framp resume DIR`"
        ) from None
