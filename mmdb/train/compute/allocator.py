"""Memory of a step stays in the process for the next one.

The C library hands large blocks back to the system when they are freed, and the system clears each
page of the next ones: between a tenth and a third of a convolutional network's step on the CPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

#: Parameters of glibc's mallopt (malloc.h): bytes that stay free at the heap's end, and blocks
#: that are mapped by themselves; and what they are without it.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER, _TRIMMED, _MAPPED = 2**31 - 1, 128 * 1024, 65_536


def keep_freed_memory() -> bool:
    """Have this process keep what it frees until it ends; return whether its library can.

    For processes that do nothing but train: others would hold the most that they ever needed.
    """
    return _set(0, _NEVER)


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Keep what is freed until the block ends."""
    is_kept = _set(0, _NEVER)
    try:
        yield
    finally:
        if is_kept:
            _set(_MAPPED, _TRIMMED)
            ctypes.CDLL(None).malloc_trim(0)


def _set(mapped: int, trimmed: int) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, another system
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return bool(mallopt(_MMAP_MAX, mapped) and mallopt(_TRIM_THRESHOLD, trimmed))
