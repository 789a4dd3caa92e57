"""What the C library does with freed memory. Only glibc can be told; other systems are left alone."""

import ctypes
import sys
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers for mallopt
_KEPT = 256 << 20
_BLOCK = 32 << 20  # the largest that glibc takes; larger blocks go back as ever


def keep_freed_memory() -> None:
    """Let this process keep what a training step frees (256 MiB, in blocks of up to 32 MiB) for the next step.

    Unless told, glibc hands it back to the system and takes page faults for it again, up to half of a worker's time.
    """
    _call("mallopt", _TRIM_THRESHOLD, _KEPT)
    _call("mallopt", _MMAP_THRESHOLD, _BLOCK)


def give_back_freed_memory() -> None:
    """Hand back what is free now, after a phase whose memory nothing later needs."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    function: Any = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
