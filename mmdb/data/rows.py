"""Scanned columns packed into rows of bytes, and the seeded hash that says where a row belongs.

Texts get codes in order of appearance, so the hash takes a text's own hash instead of its code;
`recode` puts final codes once all texts are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from blake3 import blake3

from mmdb.data.column_layout import Batch, Field, LabelValues, Layout, Request, Slot, lay_out, view
from mmdb.data.decoding import Class, Column, Decoding, Input, Label, numbers_in
from mmdb.data.options import Options
from mmdb.data.tokenize import Encoder
from mmdb.errors import InvalidOption, NotFinite, TooManyCategories


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

    def __init__(self, request: Request, seed: int, encoders: Mapping[str, Encoder]) -> None:
        """Args: encoders: of the columns that become tokens, by name."""
        self.row_count = 0
        self._request, self._seed, self._encoders = request, seed, encoders
        self._layout: Layout | None = None
        self._multipliers = np.empty(0, np.uint64)
        self._codes = {
            field.name: self._new_codes(field) for field in request.fields if field.is_coded
        }
        limit = request.options.max_classes
        self._labels = {field.name: LabelValues(field, limit) for field in request.labels}
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
            values = self._kept(slot.field, batch[slot.field.name])
            view(lanes, slot)[:] = values if values.ndim == 2 else values[:, None]
            if slot.field.is_coded:
                hashes = np.array(self._codes[slot.field.name].hashes, np.uint64)
                texts += hashes[values] * self._multipliers[-1 - index]
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
            if slot.field.is_coded:
                drawn[slot.lane : slot.lane + slot.lanes] = 0
        return drawn

    def _kept(self, field: Field, values: np.ndarray | list[str]) -> np.ndarray:
        """Return a column's values as rows keep them: numbers, provisional codes, tokens."""
        if isinstance(values, list):
            if field.tokenizer is not None:
                return self._encoders[field.name](values)
            lookup = self._codes[field.name].__getitem__
            return np.fromiter(map(lookup, values), np.int64, len(values))
        return self._labels[field.name].take(values) if field.kind == "label" else values

    def _count_not_finite(self, lanes: np.ndarray) -> None:
        floats = [slot for slot in self.layout.slots if slot.field.dtype == "<f4"]
        end = sum(slot.width for slot in floats)
        if np.isfinite(lanes[:, :end].view("<f4")).all():
            return
        for slot in floats:
            count = int((~np.isfinite(view(lanes, slot))).any(axis=1).sum())
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
        labels = tuple(
            self._labels[slot.field.name].label(slot.width, tuple(self._codes_of(slot.field)))
            for slot in self.layout.labels
        )
        columns = tuple(map(self._column, self.layout.slots))
        self._final = self._final_codes(columns, labels)
        by_name = {column.name: column for column in columns}
        return Decoding(
            columns=columns,
            inputs=tuple(
                _input(name, [by_name[column] for column in names], self._request.options)
                for name, names in self._request.inputs.items()
            ),
            labels=labels,
        )

    def _codes_of(self, field: Field) -> Mapping[str, int]:
        return self._codes.get(field.name, {})

    def _column(self, slot: Slot) -> Column:
        field = slot.field
        categories = None
        if field.kind == "categorical":
            categories = tuple(sorted(self._codes[field.name]))
        return Column(name=field.name, kind=field.kind, width=slot.width, categories=categories)

    def _final_codes(
        self, columns: Iterable[Column], labels: Iterable[Label]
    ) -> dict[str, np.ndarray]:
        """For each text column, the final code of each provisional one; else sorted classes."""
        names: dict[str, tuple[Class, ...] | None] = {c.name: c.categories for c in columns}
        names |= {label.name: label.classes for label in labels}
        final = {}
        for name, values in names.items():
            if values is not None and name in self._codes:
                place = {value: index for index, value in enumerate(values)}
                final[name] = np.array([place[text] for text in self._codes[name]])
            elif values is not None:
                final[name] = np.array([int(value) for value in values])
        return final

    def recode(self, rows: np.ndarray) -> None:
        """Replace provisional codes and label values by final codes, in place."""
        lanes = rows.view("<u4")
        for slot in self.layout.slots:
            table = self._final.get(slot.field.name)
            if table is None:
                continue
            codes = view(lanes, slot)
            codes[:] = table[codes] if slot.field.is_coded else np.searchsorted(table, codes)


def _input(name: str, columns: list[Column], options: Options) -> Input:
    names = tuple(column.name for column in columns)
    tokenizer = options.tokenize.get(names[0])
    width = sum(column.decoded_width for column in columns)
    shape = options.shapes.get(name) if name else options.shape
    if shape is not None and numbers_in(shape) != width:
        what = f"shapes.{name}" if name else "shape"
        raise InvalidOption(
            f"Option {what} {list(shape)} holds {numbers_in(shape)} numbers; "
            f"a row's features are {width}.",
            hint="The sizes multiplied are the numbers of all columns of the input.",
        )
    return Input(name=name, columns=names, shape=shape or (width,), tokenizer=tokenizer)


def _mix(keys: np.ndarray) -> np.ndarray:
    """Spread a multilinear hash over all its bits, so that its prefixes are even.

    Source: MurmurHash3's fmix64 (Austin Appleby, public domain).
    """
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        keys ^= keys >> np.uint64(33)
        keys *= np.uint64(multiplier)
    keys ^= keys >> np.uint64(33)
    return keys
