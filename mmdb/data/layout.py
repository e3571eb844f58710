"""Where each column of a dataset is in a packed row.

A row is a run of 32-bit lanes: numbers first, then the codes of texts, an integer label, and byte
strings padded with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mmdb.data.features import Field, Request
from mmdb.errors import RaggedArray

Batch = Mapping[str, "np.ndarray | list[str]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where a field is in a row."""

    field: Field
    offset: int  # bytes
    width: int  # values

    @property
    def lane(self) -> int:
        """The first of its 32-bit lanes."""
        return self.offset // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The slots of a row, in the order of the query's columns."""

    slots: tuple[Slot, ...]
    row_bytes: int
    label_dtype: str

    def of(self, *kinds: str) -> list[Slot]:
        """Return the slots of these kinds of column."""
        return [slot for slot in self.slots if slot.field.kind in kinds]

    @property
    def label(self) -> Slot:
        """The label's slot."""
        return self.of("label")[0]


_RANKS = {"numeric": 0, "tensor": 1, "categorical": 3, "label": 4, "bytes": 5}
_FLOAT_LABEL = 2  # beside the other floats


def lay_out(request: Request, batch: Batch) -> Layout:
    """Return where each field goes, with the widths of the first rows."""
    label_dtype = "<f4" if request.task == "regression" else "<i8"
    slots: dict[str, Slot] = {}
    offset = 0
    for field in sorted(request.fields, key=lambda field: _rank(field, request)):
        values = batch[field.name]
        width = values.shape[1] if isinstance(values, np.ndarray) and values.ndim == 2 else 1
        if width == 0:
            raise RaggedArray(f"Column {field.name!r} holds empty values.")
        slots[field.name] = Slot(field=field, offset=offset, width=width)
        item = 1 if field.kind == "bytes" else 4
        if field.kind == "label":
            item = np.dtype(label_dtype).itemsize
        offset += -(-item * width // 4) * 4
    return Layout(
        slots=tuple(slots[field.name] for field in request.fields),
        row_bytes=offset,
        label_dtype=label_dtype,
    )


def _rank(field: Field, request: Request) -> int:
    if field.kind == "label" and request.task == "regression":
        return _FLOAT_LABEL
    return _RANKS[field.kind]


def integers(lanes: np.ndarray, slot: Slot) -> np.ndarray:
    """Return the lanes of a code (one) or of an integer label (two) as integers, (n,)."""
    wide = slot.field.kind == "label"
    part = lanes[:, slot.lane : slot.lane + (2 if wide else 1)]
    return part.view("<i8" if wide else "<i4")[:, 0]
