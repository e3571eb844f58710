"""Blocks: rows as Arrow IPC streams of one record batch, and back.

Columns of a batch: all numeric features stacked as "numeric"; each tensor, byte string and text
(as codes or tokens) in the query's order; the labels. They are read by position, not by name.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from blake3 import blake3

from mmdb.data.arrays import Decoded
from mmdb.data.column_layout import Layout
from mmdb.data.decoding import Column, Decoding, Input, Label
from mmdb.errors import BlockCorrupt

BLOCK_BYTES = 2 * 2**20
#: Kinds of feature columns that have a column of their own in a batch.
_OWN = ("tensor", "bytes", "categorical", "tokens")


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
    for slot in layout.of(*_OWN):
        values = _values(rows, slot.offset, slot.width, slot.field.dtype)
        flat = slot.field.kind == "categorical"
        arrays.append((slot.field.name, _flat(values) if flat else _fixed_list(values)))
    for slot in layout.labels:
        values = _values(rows, slot.offset, slot.width, slot.field.dtype)
        flat = slot.field.task != "multilabel"
        arrays.append(("label", _flat(values) if flat else _fixed_list(values)))
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


def unpack(data: bytes, decoding: Decoding) -> Decoded:
    """Return a block's rows.

    Raises:
        BlockCorrupt: the bytes are no block of this decoding.
    """
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
        batch.validate(full=True)  # lengths beyond its bytes would be read, whatever lies there
        stored = [_to_numpy(column) for column in batch.columns]
        if len(stored) != _stored_columns(decoding):
            raise BlockCorrupt("A block holds other columns than its dataset.")
        features, labels = stored[: -len(decoding.labels)], stored[-len(decoding.labels) :]
        y = tuple(map(_label, decoding.labels, labels))
        x = {i.name: _input(features, decoding, i, batch.num_rows) for i in decoding.inputs}
    except (pa.ArrowException, StopIteration, ValueError, IndexError, OSError) as error:
        raise BlockCorrupt(f"A block cannot be decoded: {error}") from error
    return Decoded(inputs=x[""] if decoding.is_one_input else x, labels=y[0] if len(y) == 1 else y)


def _to_numpy(column: pa.Array) -> np.ndarray:
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)  # type: ignore[no-any-return]
    return column.to_numpy()  # type: ignore[no-any-return]


def _stored_columns(decoding: Decoding) -> int:
    kinds = [column.kind for column in decoding.columns]
    return len(kinds) - kinds.count("numeric") + ("numeric" in kinds)


def _label(label: Label, values: np.ndarray) -> np.ndarray:
    if label.task == "multilabel" and values.dtype == np.uint8:
        values = values.astype(np.float32)
    if values.dtype != np.dtype(label.dtype):
        raise BlockCorrupt("A block holds other columns than its dataset.")
    return values.reshape(-1, *label.shape)


def _input(stored: list[np.ndarray], decoding: Decoding, given: Input, count: int) -> np.ndarray:
    """Put each feature of an input where it belongs in a row."""
    places = _places(decoding)
    columns = [(c, span, stored[places[c.name]]) for c, span in decoding.spans(given)]
    first, _, values = columns[0]
    if given.tokenizer is not None:
        found = values.astype(np.int64)
    elif first.kind == "tensor" and len(columns) == 1:
        found = values
    elif all(column.kind == "numeric" for column, _, _ in columns) and given.columns == tuple(
        _numeric(decoding)
    ):
        found = values  # all of the stacked numbers, in their order
    else:
        found = np.zeros((count, columns[-1][1].stop), np.float32)
        numbers = {name: place for place, name in enumerate(_numeric(decoding))}
        for column, span, values in columns:
            if column.kind == "numeric":
                found[:, span.start] = values[:, numbers[column.name]]
            else:
                _decode(values, column, found[:, span])
    return found.reshape(-1, *given.shape)


def _numeric(decoding: Decoding) -> list[str]:
    """Return the columns whose numbers are stacked, in the query's order."""
    return [column.name for column in decoding.columns if column.kind == "numeric"]


def _places(decoding: Decoding) -> dict[str, int]:
    """Return where each feature is among the stored columns."""
    numeric = _numeric(decoding)
    places = dict.fromkeys(numeric, 0)
    own = [column.name for column in decoding.columns if column.kind in _OWN]
    return places | {name: place + bool(numeric) for place, name in enumerate(own)}


def _decode(values: np.ndarray, column: Column, x: np.ndarray) -> None:
    if column.kind == "bytes":
        np.divide(values, np.float32(255), out=x)
    elif column.kind == "categorical":
        x[np.arange(len(values)), values] = 1.0
    else:
        x[:] = values
