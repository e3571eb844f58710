"""Where each column of a dataset is in a packed row.

A row is a run of 32-bit lanes: numbers first, then the codes of texts, integer labels, and byte
strings padded with zeros, tokens, and the 0 and 1 of several labels.
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

    @property
    def byte_count(self) -> int:
        """Bytes of its values; what fills the last lane is not counted."""
        return np.dtype(self.field.dtype).itemsize * self.width

    @property
    def lanes(self) -> int:
        """32-bit lanes that it takes."""
        return -(-self.byte_count // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The slots of a row, in the order of the query's columns."""

    slots: tuple[Slot, ...]
    labels: tuple[Slot, ...]  # in the order of the targets
    row_bytes: int

    def of(self, *kinds: str) -> list[Slot]:
        """Return the slots of these kinds of column."""
        return [slot for slot in self.slots if slot.field.kind in kinds]


_RANKS = {
    "numeric": 0,
    "tensor": 1,
    "regression": 2,  # beside the other floats
    "categorical": 3,
    "classification": 4,
    "bytes": 5,
    "tokens": 6,
    "multilabel": 7,
}


def lay_out(request: Request, batch: Batch) -> Layout:
    """Return where each field goes, with the widths of the first rows."""
    slots: dict[str, Slot] = {}
    offset = 0
    for field in sorted(request.fields, key=lambda field: _RANKS[field.task or field.kind]):
        width = _width(field, batch[field.name])
        if width == 0:
            raise RaggedArray(f"Column {field.name!r} holds empty values.")
        slots[field.name] = Slot(field=field, offset=offset, width=width)
        offset += 4 * slots[field.name].lanes
    return Layout(
        slots=tuple(slots[field.name] for field in request.fields),
        labels=tuple(slots[field.name] for field in request.labels),
        row_bytes=offset,
    )


def _width(field: Field, values: np.ndarray | list[str]) -> int:
    if field.tokenizer is not None:
        return field.tokenizer.length
    return values.shape[1] if isinstance(values, np.ndarray) and values.ndim == 2 else 1


def view(lanes: np.ndarray, slot: Slot) -> np.ndarray:
    """Return the values of a slot in rows of lanes, (n, width), to be read or written."""
    if slot.field.dtype == "u1":
        return lanes.view(np.uint8)[:, slot.offset : slot.offset + slot.width]
    return lanes[:, slot.lane : slot.lane + slot.lanes].view(slot.field.dtype)
