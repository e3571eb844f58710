"""Numbers between numpy and pyarrow, whose own conversions load pandas where it is installed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def to_numpy(array: pa.Array) -> np.ndarray:
    """Return the numbers of an array without NULLs, not copied.

    Raises:
        pa.ArrowException: it has NULLs, or is of another type.
    """
    kind = array.type
    if array.null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise pa.ArrowInvalid(f"{array.null_count} NULLs of {kind} among numbers")
    return np.from_dlpack(array)


def to_arrow(values: np.ndarray, missing: np.ndarray | None = None) -> pa.Array:
    """Return numbers as an array, not copied; those that are missing as NULLs."""
    given = np.ascontiguousarray(values)
    there = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    kind = pa.from_numpy_dtype(given.dtype)
    return pa.Array.from_buffers(kind, given.size, [there, pa.py_buffer(given)])
