"""Values between Python, numpy and pyarrow, which loads pandas where that is installed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa


def to_array(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Return Python's values as an array, None as NULL."""
    _load_pandas()
    return pa.array(values, kind)


@cache
def _load_pandas() -> None:
    """Let pyarrow load pandas, as it does once, and a Ctrl-C wait for that.

    Pandas' compiled parts would make an AttributeError of it, and be half loaded.
    """
    handler, came = signal.getsignal(signal.SIGINT), []
    held = threading.current_thread() is threading.main_thread() and callable(handler)
    if held:
        signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        pa.array([])
    finally:
        if held:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def to_numpy(array: pa.Array) -> np.ndarray:
    """Return the numbers of an array without NULLs, not copied.

    Raises:
        pa.ArrowException: it has NULLs, or is of another type.
    """
    kind = array.type
    if array.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise pa.ArrowInvalid(f"{array.null_count} NULLs of {kind} among numbers")
    return np.from_dlpack(array)


def to_nullable_numpy(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of an array, anything for NULL, and which are NULL; neither copied."""
    values = pa.Array.from_buffers(
        array.type, len(array), [None, array.buffers()[1]], offset=array.offset
    )
    return to_numpy(values), to_numpy(array.is_null().cast(pa.uint8())).view(bool)


def to_arrow(values: np.ndarray, missing: np.ndarray | None = None) -> pa.Array:
    """Return numbers as an array, not copied; those that are missing as NULLs."""
    given = np.ascontiguousarray(values)
    there = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    kind = pa.from_numpy_dtype(given.dtype)
    return pa.Array.from_buffers(kind, given.size, [there, pa.py_buffer(given)])
