"""Scanned columns packed into rows of bytes, and the seeded hash that says where a row belongs.

Texts get codes in order of appearance, so the hash takes a text's own hash instead of its code;
`recode` puts final codes once all texts are known.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from blake3 import blake3

from mmdb.data.decoding import Class, Column, Decoding, numbers_in
from mmdb.data.features import Field, Request
from mmdb.data.layout import Batch, Layout, Slot, integers, lay_out
from mmdb.errors import (
    InvalidOption,
    NotFinite,
    OneClass,
    TooManyCategories,
)

#: Whole numbers that float32 holds exactly.
EXACT = 2**24


class _Codes(dict[str, int]):
    """Gives each text the next code, and keeps its hash."""

    def __init__(self, name: str, limit: int, hint: str) -> None:
        super().__init__()
        self.hashes: list[int] = []
        self._name, self._limit, self._hint = name, limit, hint

    def __missing__(self, text: str) -> int:
        if len(self) == self._limit:
            raise TooManyCategories(
                f"Column {self._name!r} has more than {self._limit} distinct values.",
                hint=self._hint,
            )
        self[text] = code = len(self)
        self.hashes.append(int.from_bytes(blake3(text.encode()).digest(length=8), "little"))
        return code


class RowPacker:
    """Packs the batches of one scan and learns what its texts and classes are."""

    def __init__(self, request: Request, seed: int) -> None:
        self.row_count = 0
        self._request, self._seed = request, seed
        self._layout: Layout | None = None
        self._multipliers = np.empty(0, np.uint64)
        self._codes = {
            field.name: self._new_codes(field)
            for field in request.fields
            if field.scanned == "text"
        }
        self._classes: set[int] = set()
        self._not_finite: dict[str, int] = {}
        self._final: dict[str, np.ndarray] = {}

    def _new_codes(self, field: Field) -> _Codes:
        options = self._request.options
        if field.kind == "label":
            return _Codes(field.name, options.max_classes, "Raise the option max_classes.")
        hint = f"{TooManyCategories.default_hint} The option max_categories raises the limit."
        return _Codes(field.name, options.max_categories, hint)

    @property
    def layout(self) -> Layout:
        """Where each field is in a row; known after the first batch."""
        assert self._layout is not None
        return self._layout

    def pack(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch's rows, uint8 (n, row_bytes), and their keys, uint64 (n,)."""
        if self._layout is None:
            self._layout = lay_out(self._request, batch)
            self._multipliers = self._draw_multipliers()
        count = len(batch[self._request.label.name])
        lanes = np.zeros((count, self._layout.row_bytes // 4), "<u4")
        texts = np.zeros(count, np.uint64)
        for index, slot in enumerate(self._layout.slots):
            codes = self._write(lanes, slot, batch[slot.field.name])
            if codes is not None:
                hashes = np.array(self._codes[slot.field.name].hashes, np.uint64)
                texts += hashes[codes] * self._multipliers[-1 - index]
        self._count_not_finite(lanes)
        self.row_count += count
        keys = lanes @ self._multipliers[: lanes.shape[1]]
        return lanes.view(np.uint8), _mix(keys + texts)

    def _draw_multipliers(self) -> np.ndarray:
        """One odd number a lane (0 where the lane is a code), then one for each field."""
        lanes = self.layout.row_bytes // 4
        seed = blake3(f"mmdb row order {self._seed}".encode())
        drawn = np.frombuffer(seed.digest(length=8 * (lanes + len(self.layout.slots))), "<u8")
        drawn = drawn | np.uint64(1)
        for slot in self.layout.slots:
            if slot.field.scanned == "text":
                drawn[slot.lane : slot.lane + (2 if slot.field.kind == "label" else 1)] = 0
        return drawn

    def _write(
        self, lanes: np.ndarray, slot: Slot, values: np.ndarray | list[str]
    ) -> np.ndarray | None:
        """Write a column into its lanes; return its codes if it is text."""
        field = slot.field
        if isinstance(values, list):
            lookup = self._codes[field.name].__getitem__
            codes = np.fromiter(map(lookup, values), np.int64, len(values))
            integers(lanes, slot)[:] = codes
            return codes
        if field.kind == "bytes":
            view = lanes.view(np.uint8)[:, slot.offset : slot.offset + slot.width]
            view[:] = values
        elif field.kind == "label" and self._request.task == "classification":
            classes = values if values.dtype == np.int64 else self._whole(values)
            self._learn_classes(classes)
            integers(lanes, slot)[:] = classes
        else:
            view = lanes.view("<f4")[:, slot.lane : slot.lane + slot.width]
            view[:] = values if values.ndim == 2 else values[:, None]
        return None

    def _whole(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            whole = (np.rint(values) == values) & (np.abs(values) <= EXACT)
        if not whole.all():
            raise InvalidOption(
                f"Label {self._request.label.name!r} holds {values[~whole][0]}, which is no class.",
                hint="A classification of floats needs whole numbers; cast or round them.",
            )
        return values.astype(np.int64)

    def _learn_classes(self, values: np.ndarray) -> None:
        self._classes.update(np.unique(values).tolist())
        limit = self._request.options.max_classes
        if len(self._classes) > limit:
            raise TooManyCategories(
                f"Label {self._request.label.name!r} has more than {limit} classes.",
                hint='Pass the option "task": "regression", or raise max_classes.',
            )

    def _count_not_finite(self, lanes: np.ndarray) -> None:
        floats = [s for s in self.layout.slots if s.field.scanned in ("real", "reals")]
        if self._request.task == "classification":
            floats = [s for s in floats if s.field.kind != "label"]
        end = sum(slot.width for slot in floats)
        if np.isfinite(lanes[:, :end].view("<f4")).all():
            return
        for slot in floats:
            values = lanes[:, slot.lane : slot.lane + slot.width].view("<f4")
            count = int((~np.isfinite(values)).any(axis=1).sum())
            if count:
                self._not_finite[slot.field.name] = self._not_finite.get(slot.field.name, 0) + count

    # -- when every row has been seen ------------------------------------------

    def decoding(self) -> Decoding:
        """Return how the rows are decoded.

        Raises:
            NotFinite, OneClass, InvalidOption: the shape does not fit.
        """
        if self._not_finite:
            counts = ", ".join(f"{name} ({n} rows)" for name, n in self._not_finite.items())
            raise NotFinite(f"The query returned NaN, infinite or too large numbers: {counts}.")
        classes = self._find_classes()
        if classes is not None and len(classes) < 2:
            raise OneClass(
                f"Label {self._request.label.name!r} has the single class {classes[0]!r}."
            )
        widths = {slot.field.name: slot.width for slot in self.layout.slots}
        columns = tuple(self._column(field, widths) for field in self._request.fields)
        self._final = self._final_codes(columns, classes)
        return Decoding(
            columns=columns,
            task=self._request.task,
            input_shape=_input_shape(columns, self._request.options.shape),
            classes=classes,
        )

    def _find_classes(self) -> tuple[Class, ...] | None:
        label = self._request.label
        if self._request.task == "regression":
            return None
        if label.scanned == "text":
            return tuple(sorted(self._codes[label.name]))
        values = sorted(self._classes)
        return tuple(map(bool, values)) if label.type == "boolean" else tuple(values)

    def _column(self, field: Field, widths: Mapping[str, int]) -> Column:
        categories = None
        if field.kind == "categorical":
            categories = tuple(sorted(self._codes[field.name]))
        return Column(
            name=field.name, kind=field.kind, width=widths[field.name], categories=categories
        )

    def _final_codes(
        self, columns: tuple[Column, ...], classes: tuple[Class, ...] | None
    ) -> dict[str, np.ndarray]:
        """For each text column, the final code of each provisional one; else sorted classes."""
        final = {}
        for column in columns:
            names = column.categories if column.kind == "categorical" else classes
            if column.name in self._codes and names is not None:
                place = {name: index for index, name in enumerate(names)}
                final[column.name] = np.array([place[text] for text in self._codes[column.name]])
            elif column.kind == "label" and classes is not None:
                final[column.name] = np.array([int(value) for value in classes])
        return final

    def recode(self, rows: np.ndarray) -> None:
        """Replace provisional codes and label values by final codes, in place."""
        lanes = rows.view("<u4")
        for slot in self.layout.slots:
            table = self._final.get(slot.field.name)
            if table is None:
                continue
            view = integers(lanes, slot)
            texts = slot.field.scanned == "text"
            view[:] = table[view] if texts else np.searchsorted(table, view)


def _input_shape(columns: tuple[Column, ...], shape: tuple[int, ...] | None) -> tuple[int, ...]:
    width = sum(column.decoded_width for column in columns if column.kind != "label")
    if shape is None:
        return (width,)
    if numbers_in(shape) != width:
        raise InvalidOption(
            f"Option shape {list(shape)} holds {numbers_in(shape)} numbers; "
            f"a row's features are {width}."
        )
    return shape


def _mix(keys: np.ndarray) -> np.ndarray:
    """Spread a multilinear hash over all its bits, so that its prefixes are even.

    Source: MurmurHash3's fmix64 (Austin Appleby, public domain).
    """
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        keys ^= keys >> np.uint64(33)
        keys *= np.uint64(multiplier)
    keys ^= keys >> np.uint64(33)
    return keys
