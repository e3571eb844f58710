"""Blocks: rows as Arrow IPC streams of one record batch, and back.

A batch holds raw values, which transforms make a model's inputs of when they are read. Its columns:
all numbers that have no transform stacked as "numeric"; every other column in the query's order,
numbers with NaN for NULL, texts as a dictionary or tokens; the labels; the rows' weights. They are
read by position, not by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from blake3 import blake3

from mmdb.data.arrays import Decoded, Inputs
from mmdb.data.assembly import Values, assemble
from mmdb.data.column_layout import Layout, Slot
from mmdb.data.decoding import IGNORED, Decoding, Label
from mmdb.data.tokenize import FILL
from mmdb.db.arrow import to_arrow, to_numpy
from mmdb.db.connection import Texts
from mmdb.db.row_formats import columns_of
from mmdb.errors import BlockCorrupt

BLOCK_BYTES = 2 * 2**20


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


def pack(rows: np.ndarray, layout: Layout, texts: Mapping[str, pa.Array]) -> bytes:
    """Return one block.

    Args:
        rows: uint8 (n, row_bytes), with final codes.
        texts: of each column of texts, by code.
    """
    arrays: list[tuple[str, pa.Array]] = []
    numeric = [slot for slot in layout.slots if _is_stacked(slot.field.kind, slot.field.source)]
    if numeric:
        stacked = _values(rows, numeric[0].offset, len(numeric), "<f4")
        arrays.append(("numeric", _fixed_list(stacked)))
    wide = [slot for slot in layout.slots if slot.field.dtype == "<f8"]  # lie side by side
    moved = iter(columns_of(_view(rows, wide[0].offset, len(wide), "<f8")) if wide else ())
    for slot in layout.slots:
        if slot not in numeric and slot.field.kind not in ("label", "weight"):
            if slot in wide:
                values = next(moved)
            else:
                values = _values(rows, slot.offset, slot.width, slot.field.dtype)
            arrays.append((slot.field.name, _stored(slot, values, texts)))
    for slot in layout.labels:
        if slot.field.kind != "label":  # next tokens are those of a feature
            continue
        values = _values(rows, slot.offset, slot.width, slot.field.dtype)
        flat = slot.field.task != "multilabel"
        arrays.append(("label", _flat(values) if flat else _fixed_list(values)))
    for slot in layout.of("weight"):
        arrays.append(("weight", _flat(_values(rows, slot.offset, 1, "<f4"))))
    return _stream(pa.RecordBatch.from_arrays([a for _, a in arrays], names=[n for n, _ in arrays]))


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _is_stacked(kind: str, source: object) -> bool:
    """Whether a column's numbers are what a model takes, and lie beside those of others."""
    return kind == "numeric" and source is None


def _stored(slot: Slot, values: np.ndarray, texts: Mapping[str, pa.Array]) -> pa.Array:
    if slot.field.source in (None, "picture"):
        return _fixed_list(values)
    if slot.field.source == "text":
        known = texts[slot.field.name]
        is_there = np.zeros(len(known), bool)
        is_there[values] = True
        places = np.cumsum(is_there, dtype=np.int32) - 1
        distinct = known.take(to_arrow(np.flatnonzero(is_there)))
        return pa.DictionaryArray.from_arrays(to_arrow(places[values[:, 0]]), distinct)
    with np.errstate(over="ignore"):  # what becomes infinite is not exact
        narrow = values.astype(np.float32)
    exact = (narrow == values) | np.isnan(values)
    return _flat(narrow if exact.all() else values)


def _values(rows: np.ndarray, offset: int, width: int, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(_view(rows, offset, width, dtype))  # (n, width)


def _view(rows: np.ndarray, offset: int, width: int, dtype: str) -> np.ndarray:
    return rows[:, offset : offset + np.dtype(dtype).itemsize * width].view(dtype)


def _fixed_list(values: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(to_arrow(values.reshape(-1)), values.shape[1])


def _flat(values: np.ndarray) -> pa.Array:
    return to_arrow(values.reshape(-1))


def unpack(
    data: bytes,
    decoding: Decoding,
    model: Decoding | None = None,
    masked: Sequence[int] | None = None,
) -> Decoded:
    """Return a block's rows.

    Args:
        model: whose inputs the rows become; None: those of their own dataset.
        masked: places of rows that are left out.
    Raises:
        BlockCorrupt: the bytes are no block of this decoding.
        NotFinite: a column has NULLs that the model's transforms know nothing of.
    """
    try:
        batch = _batch(data, masked)
        places = _places(decoding)
        features = max(places.values(), default=-1) + 1
        own = [label for label in decoding.labels if label.is_stored]
        if batch.num_columns != features + len(own) + decoding.is_weighted:
            raise BlockCorrupt("A block holds other columns than its dataset.")
        stored = [_to_values(column) for column in batch.columns]
        columns = _columns(stored, decoding, places)
        y = tuple(map(_label, own, stored[features:]))
        y += tuple(next_tokens(columns[one.name]) for one in decoding.labels if not one.is_stored)
        if decoding.is_weighted:
            y = (*y, np.asarray(stored[-1], np.float32))
        if model is None and _is_one_stack(decoding):
            x: Inputs = np.asarray(stored[0]).reshape(batch.num_rows, *decoding.inputs[0].shape)
        else:
            x = assemble(model or decoding, columns)
    except (pa.ArrowException, StopIteration, ValueError, IndexError, OSError) as error:
        raise BlockCorrupt(f"A block cannot be decoded: {error}") from error
    return Decoded(inputs=x, labels=y[0] if len(y) == 1 else y)


def _batch(data: bytes, masked: Sequence[int] | None) -> pa.RecordBatch:
    batch = pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
    batch.validate(full=True)  # lengths beyond its bytes would be read, whatever lies there
    if not masked:
        return batch
    return batch.take(to_arrow(np.delete(np.arange(batch.num_rows), masked)))


def without_rows(data: bytes, gone: np.ndarray) -> bytes:
    """Return a block without some rows, a mask: no byte of them is left in it.

    Raises:
        BlockCorrupt: the bytes are no block.
    """
    try:
        batch = _batch(data, np.flatnonzero(gone).tolist())
        return _stream(
            pa.RecordBatch.from_arrays([*map(_own_texts, batch.columns)], names=batch.schema.names)
        )
    except (pa.ArrowException, StopIteration, ValueError, IndexError, OSError) as error:
        raise BlockCorrupt(f"A block cannot be decoded: {error}") from error


def _own_texts(column: pa.Array) -> pa.Array:
    """Return a column whose dictionary holds its own texts alone."""
    if not pa.types.is_dictionary(column.type):
        return column
    used, places = np.unique(to_numpy(column.indices), return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        to_arrow(places.astype(np.int32)), column.dictionary.take(to_arrow(used))
    )


def unpack_columns(
    data: bytes, decoding: Decoding, masked: Sequence[int] | None = None
) -> dict[str, Values]:
    """Return the values of a block's features, by column, as they came from the query.

    Raises:
        BlockCorrupt: the bytes are no block of this decoding.
    """
    try:
        stored = [_to_values(column) for column in _batch(data, masked).columns]
        return _columns(stored, decoding, _places(decoding))
    except (pa.ArrowException, StopIteration, ValueError, IndexError, OSError) as error:
        raise BlockCorrupt(f"A block cannot be decoded: {error}") from error


def _to_values(column: pa.Array) -> Values:
    if pa.types.is_dictionary(column.type):
        return Texts(column.dictionary.to_pylist(), to_numpy(column.indices))
    if pa.types.is_fixed_size_list(column.type):
        return to_numpy(column.flatten()).reshape(-1, column.type.list_size)
    return to_numpy(column)


def _places(decoding: Decoding) -> dict[str, int]:
    """Return where each feature is among the stored columns."""
    stacked = [c.name for c in decoding.stored if _is_stacked(c.kind, c.transform)]
    own = [c.name for c in decoding.stored if not _is_stacked(c.kind, c.transform)]
    places = dict.fromkeys(stacked, 0)
    return places | {name: place + bool(stacked) for place, name in enumerate(own)}


def _label(label: Label, values: Values) -> np.ndarray:
    assert isinstance(values, np.ndarray)
    if label.task == "multilabel" and values.dtype == np.uint8:
        values = values.astype(np.float32)
    if values.dtype != np.dtype(label.dtype):
        raise BlockCorrupt("A block holds other columns than its dataset.")
    return values.reshape(-1, *label.shape)


def next_tokens(tokens: Values) -> np.ndarray:
    """Return the label of each token, the one after it, int64 (n, length)."""
    assert isinstance(tokens, np.ndarray)
    found = np.full(tokens.shape, IGNORED, np.int64)
    after = tokens[:, 1:]
    found[:, :-1] = np.where(after == FILL, IGNORED, after)
    return found


def _is_one_stack(decoding: Decoding) -> bool:
    """Whether a block's first column is the only input."""
    stacked = tuple(c.name for c in decoding.stored if _is_stacked(c.kind, c.transform))
    return decoding.is_one_input and decoding.inputs[0].columns == stacked


def _columns(
    stored: Sequence[Values], decoding: Decoding, places: Mapping[str, int]
) -> dict[str, Values]:
    """Return the values of each column that feeds models."""
    found: dict[str, Values] = {}
    stacked = 0
    for column in decoding.stored:
        values = stored[places[column.name]]
        if _is_stacked(column.kind, column.transform):
            assert isinstance(values, np.ndarray)
            values = values[:, stacked]
            stacked += 1
        elif isinstance(values, np.ndarray) and values.size != len(values) * column.width:
            raise BlockCorrupt("A block holds other columns than its dataset.")
        found[column.name] = values
    return found
