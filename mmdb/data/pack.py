"""Blocks: rows as Arrow IPC streams of one record batch, and back.

Columns of a batch: all numeric features stacked as "numeric"; each tensor, byte string and text
(as codes) in the query's order; the label. They are read by position, not by name.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from blake3 import blake3

from mmdb.data.decoding import Column, Decoding
from mmdb.data.layout import Layout
from mmdb.errors import BlockCorrupt

BLOCK_BYTES = 2 * 2**20
_DTYPES = {"tensor": "<f4", "bytes": "u1", "categorical": "<i4"}


def digest(data: bytes) -> bytes:
    """Return the BLAKE3-256 of a block, or of hashes put together."""
    return blake3(data).digest()


def partition_hash(digests: Iterable[bytes], decoding: Decoding) -> bytes:
    """Return a partition's content hash: over its blocks' digests and its decoding."""
    return digest(b"".join(digests) + decoding.canonical_json())


def dataset_hash(hashes: Iterable[bytes]) -> bytes:
    """Return a dataset's content hash: over its partitions' hashes, train first, by ordinal."""
    return digest(b"".join(hashes))


def rows_per_block(layout: Layout) -> int:
    """Return how many rows fill a block."""
    return max(1, BLOCK_BYTES // layout.row_bytes)


def pack(rows: np.ndarray, layout: Layout) -> bytes:
    """Return one block.

    Args:
        rows: uint8 (n, row_bytes), with final codes.
    """
    arrays: list[tuple[str, pa.Array]] = []
    numeric = layout.of("numeric")
    if numeric:
        values = _values(rows, numeric[0].offset, len(numeric), "<f4")
        arrays.append(("numeric", _fixed_list(values)))
    for slot in layout.of("tensor", "bytes", "categorical"):
        values = _values(rows, slot.offset, slot.width, _DTYPES[slot.field.kind])
        flat = slot.field.kind == "categorical"
        arrays.append((slot.field.name, _flat(values) if flat else _fixed_list(values)))
    arrays.append(("label", _flat(_values(rows, layout.label.offset, 1, layout.label_dtype))))
    batch = pa.RecordBatch.from_arrays([a for _, a in arrays], names=[n for n, _ in arrays])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _values(rows: np.ndarray, offset: int, width: int, dtype: str) -> np.ndarray:
    size = np.dtype(dtype).itemsize * width
    return np.ascontiguousarray(rows[:, offset : offset + size]).view(dtype)  # (n, width)


def _fixed_list(values: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def _flat(values: np.ndarray) -> pa.Array:
    return pa.array(values.reshape(-1))


def unpack(data: bytes, decoding: Decoding) -> tuple[np.ndarray, np.ndarray]:
    """Return a block's features, float32 (n, *input_shape), and labels, (n,).

    Raises:
        BlockCorrupt: the bytes are no block of this decoding.
    """
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
        stored = [_to_numpy(column) for column in batch.columns]
        x = _features(stored, decoding, batch.num_rows)
    except (pa.ArrowException, StopIteration, ValueError, IndexError, OSError) as error:
        raise BlockCorrupt(f"A block cannot be decoded: {error}") from error
    y = stored[-1]
    if y.dtype != np.dtype(decoding.label_dtype) or len(stored) != _stored_columns(decoding):
        raise BlockCorrupt("A block holds other columns than its dataset.")
    return x.reshape(-1, *decoding.input_shape), y


def _to_numpy(column: pa.Array) -> np.ndarray:
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)  # type: ignore[no-any-return]
    return column.to_numpy()  # type: ignore[no-any-return]


def _stored_columns(decoding: Decoding) -> int:
    kinds = [column.kind for column in decoding.columns]
    return len(kinds) - kinds.count("numeric") + ("numeric" in kinds)


def _features(stored: list[np.ndarray], decoding: Decoding, count: int) -> np.ndarray:
    """Put each feature where it belongs in a row: in the order of the query's columns."""
    kinds = {column.kind for column in decoding.features}
    if kinds == {"numeric"} or (kinds == {"tensor"} and len(decoding.features) == 1):
        return stored[0]
    x = np.zeros((count, decoding.width), np.float32)
    numbers = iter(range(decoding.width))
    others = iter(stored[1:] if "numeric" in kinds else stored)
    for column, span in decoding.spans():
        if column.kind == "numeric":
            x[:, span.start] = stored[0][:, next(numbers)]
        else:
            _decode(next(others), column, x[:, span])
    return x


def _decode(values: np.ndarray, column: Column, x: np.ndarray) -> None:
    if column.kind == "bytes":
        np.divide(values, np.float32(255), out=x)
    elif column.kind == "categorical":
        x[np.arange(len(values)), values] = 1.0
    else:
        x[:] = values
