"""Scanned columns packed into rows of bytes, and the seeded hash that says where a row belongs.

Texts get codes in order of appearance, so the hash takes a text's own hash instead of its code;
`recode` puts final codes once all texts are known.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from blake3 import blake3

from mmdb.data.column_layout import (
    SPLIT,
    Field,
    LabelValues,
    Layout,
    Request,
    Slot,
    check_finite,
    check_weights,
    lay_out,
    view,
)
from mmdb.data.decoding import Column, Decoding, Input, Label, numbers_in
from mmdb.data.options import Options
from mmdb.data.pictures import decode_all, picture_transform
from mmdb.data.shuffle import ODD, mix
from mmdb.data.split import ROLES, Role, Split
from mmdb.data.tokenize import Encoder
from mmdb.data.transform.fitting import fit_numbers, fit_texts
from mmdb.data.transform.transform import FittedTransform
from mmdb.db.arrow import to_array
from mmdb.db.connection import Batch, Texts
from mmdb.db.row_formats import TILE
from mmdb.errors import DataError, InvalidOption, TooManyCategories

FIT_AGAIN = (
    "Make a version with transforms and classes of its own: refresh_dataset(..., fit => true)."
)
#: Seconds of the year 1's begin and of the year 10,000's, from 1970.
FIRST_MOMENT, LAST_MOMENT = -62_135_596_800.0, 253_402_300_800.0
#: Values of columns that are fitted together take about as many bytes.
FIT_BYTES = 160 * 10**6
#: A label whose deviation is less than so many steps of float32 is looked at: rounding may hide it.
ROUGH = 16


class _Codes(dict[str | None, int]):
    """Gives each text the next code, and keeps its hash."""

    def __init__(self, name: str, limit: int, hint: str) -> None:
        super().__init__()
        self.hashes = array("Q")
        self._name, self._limit, self._hint = name, limit, hint

    def __missing__(self, text: str | None) -> int:
        if len(self) == self._limit:
            raise TooManyCategories(
                f"Column {self._name!r} has more than {self._limit} distinct values.",
                hint=self._hint,
            )
        self[text] = code = len(self)
        shown = b"\0NULL" if text is None else text.encode()  # no text of a database has a zero
        self.hashes.append(int.from_bytes(blake3(shown).digest(length=8), "little"))
        return code


class RowPacker:
    """Packs the batches of one scan and learns what its texts and classes are."""

    def __init__(self, request: Request, split: Split, encoders: Mapping[str, Encoder]) -> None:
        """Args: encoders: of the columns that become tokens, by name."""
        self.row_count = 0
        self._request, self._split, self.encoders = request, split, encoders
        self._roles = np.zeros(len(ROLES), np.int64)  # rows of each
        self._layout: Layout | None = None
        self._multipliers = np.empty((0, 2), np.uint64)
        self._codes = {
            field.name: self._new_codes(field) for field in request.fields if field.is_coded
        }
        limit = request.options.max_classes
        self._labels = {field.name: LabelValues(field, limit) for field in request.labels}
        self._not_finite: dict[str, int] = {}
        self._final: dict[str, np.ndarray] = {}
        self._scales: dict[str, tuple[float, float]] = {}  # of regressions' labels
        self.texts: dict[str, pa.Array] = {}  # of feature columns, by final code
        self.rough: list[str] = []  # labels that float32 may have rounded to the same
        self.skipped: dict[str, int] = {}  # rows whose picture cannot be decoded, by column
        self._pictures = {
            field.name: picture_transform(field.asked)
            for field in request.fields
            if field.source == "picture" and field.asked["kind"] == "picture"
        }

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
        """Return a batch's rows, uint8 (n, stride), and what orders them, uint64 (n,)."""
        batch = self._decoded(batch)
        if self._layout is None:
            self._layout = lay_out(self._request, batch)
            seeds = f"mmdb row order {self._split.seed}", "mmdb row"
            self._multipliers = np.stack([self._draw_multipliers(seed) for seed in seeds], 1)
        count = len(batch[self._request.label.name])
        lanes = np.zeros((count, self._layout.stride // 4), "<u4")
        sums = np.zeros((count, 2), np.uint64)  # for the order; of what a row is known by
        copies = []
        for index, slot in enumerate(self._layout.slots):
            values = self._kept(slot.field, batch[slot.field.name])
            copies.append((view(lanes, slot), values if values.ndim == 2 else values[:, None]))
            if slot.field.is_coded:
                hashes = np.frombuffer(self._codes[slot.field.name].hashes, np.uint64)
                sums += hashes[values][:, None] * self._multipliers[-1 - index]
        for first in range(0, count, TILE):
            for place, values in copies:
                place[first : first + TILE] = values[first : first + TILE]
        self._count_not_finite(lanes)
        self.row_count += count
        own = lanes[:, : self._layout.row_bytes // 4]
        sums += own @ self._multipliers[: own.shape[1]]
        keys = mix(np.ascontiguousarray(sums[:, 0]))
        found = self._layout.hashes_of(lanes.view(np.uint8))
        found[:, 0] = mix(mix(np.ascontiguousarray(sums[:, 1])) * ODD + keys)
        for field in self._request.keys:
            found[:, 1] = mix(found[:, 1] * ODD + _key_hashes(batch[field.output]))
        if self._split.column is not None:  # rows of a role come together
            roles = self._split.places(batch[SPLIT])
            keys = (keys >> np.uint64(2)) | (roles << np.uint64(62))
        return lanes.view(np.uint8), keys

    def keep(self, keys: np.ndarray) -> None:
        """Count rows that are kept, by what orders them."""
        if self._split.column is not None:
            roles = (keys >> np.uint64(62)).astype(np.int64)
            self._roles += np.bincount(roles, minlength=len(ROLES))

    def _decoded(self, batch: Batch) -> Batch:
        """Return a batch with pictures as bytes, without the rows whose picture is damaged.

        Raises:
            DataError: one is, and the options do not say to skip it.
        """
        left_out: set[int] = set()
        for name, transform in self._pictures.items():
            pixels, failed = decode_all(transform, batch[name])  # type: ignore[arg-type]
            if failed and transform.parameters.get("on_error") != "skip":
                place, why = next(iter(failed.items()))
                raise DataError(
                    f"Column {name!r} holds no picture in row {self.row_count + place + 1} of the "
                    f"query: {why}.",
                    hint=f'Leave the row out, or pass transforms {{"{name}": '
                    '{"kind": "picture", "on_error": "skip"}}.',
                )
            self.skipped[name] = self.skipped.get(name, 0) + len(failed.keys() - left_out)
            left_out |= failed.keys()
            batch = {**batch, name: pixels}
        if not left_out:
            return batch
        kept = [row for row in range(len(batch[self._request.label.name])) if row not in left_out]
        return {name: _some(values, kept) for name, values in batch.items()}

    def slices(self) -> list[tuple[Role, int]]:
        """Return role and row count of each slice, in the order of the shuffled rows.

        Raises:
            TooFewRows: a slice would be empty.
        """
        if self._split.column is None:
            return self._split.slices(self.row_count)
        return self._split.cut(self.role_counts())

    def role_counts(self) -> dict[Role, int]:
        """Return how many rows each slice has, where a column says it."""
        return dict(zip(ROLES, self._roles.tolist(), strict=True))

    def _draw_multipliers(self, seed: str) -> np.ndarray:
        """One odd number a lane (0 where the lane is a code), then one for each field."""
        lanes = self.layout.row_bytes // 4
        digest = blake3(seed.encode()).digest(length=8 * (lanes + len(self.layout.slots)))
        drawn = np.frombuffer(digest, "<u8")
        drawn = drawn | np.uint64(1)
        for slot in self.layout.slots:
            if slot.field.is_coded:
                drawn[slot.lane : slot.lane + slot.lanes] = 0
        return drawn

    def _kept(self, field: Field, values: np.ndarray | Sequence[Any]) -> np.ndarray:
        """Return a column's values as rows keep them: numbers, provisional codes, tokens."""
        if isinstance(values, Texts) and field.tokenizer is None:
            codes = self._codes[field.name]
            found = np.fromiter(map(codes.__getitem__, values.distinct), np.int64)
            return found[values.places]  # type: ignore[no-any-return]
        if not isinstance(values, np.ndarray):
            return self.encoders[field.name](values)
        if field.source is not None:
            return self._checked(field, values + 0.0)  # engines differ in the sign of zero
        if field.kind == "weight":
            check_weights(field.name, values)
        return self._labels[field.name].take(values) if field.kind == "label" else values

    def _checked(self, field: Field, values: np.ndarray) -> np.ndarray:
        """Count infinite numbers, and refuse moments that are no date of four digits."""
        infinite = int(np.isinf(values).sum())
        if infinite:
            counted = self._not_finite.get(field.name, 0)
            self._not_finite[field.name] = counted + infinite
        elif field.source == "moment":
            strange = (values < FIRST_MOMENT) | (values >= LAST_MOMENT)
            if strange.any():
                raise DataError(
                    f"Column {field.name!r} holds a date before the year 1 or after 9999.",
                    hint="Leave such rows out, or make it NULL, as with CASE.",
                )
        return values

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

    def check_finite(self) -> None:
        """Raise NotFinite where a number was NaN or infinite."""
        check_finite(self._not_finite)

    def fit(
        self, train: Callable[[], Iterator[np.ndarray]], rows: int
    ) -> dict[str, FittedTransform]:
        """Return the transforms, by column, as the train rows say.

        Args:
            train: yields all train rows in their order, some at a time, as `pack` made them.
            rows: how many they are.
        """
        self._fit_labels(train)
        for slot in self.layout.of("weight"):
            if not any(view(chunk.view("<u4"), slot).any() for chunk in train()):
                raise DataError(f"Column {slot.field.name!r} weighs every train row 0.")
        slots = [
            slot
            for slot in self.layout.slots
            if slot.field.source is not None and slot.field.name not in self._pictures
        ]
        fitted = dict(self._pictures)
        fitted |= self._fit_texts(train, [slot for slot in slots if slot.field.is_coded])
        numbers = [slot for slot in slots if not slot.field.is_coded]
        held = max(1, FIT_BYTES // (8 * rows))  # columns that are held in memory together
        for begin in range(0, len(numbers), held):
            some = numbers[begin : begin + held]
            values = [np.empty(rows, slot.field.dtype) for slot in some]
            start = 0
            for chunk in train():
                found = [view(chunk.view("<u4"), slot)[:, 0] for slot in some]
                for first in range(0, len(chunk), TILE):
                    for column, given in zip(values, found, strict=True):
                        part = given[first : first + TILE]
                        column[start + first : start + first + len(part)] = part
                start += len(chunk)
            for column, slot in zip(values, some, strict=True):
                field = slot.field
                assert field.source is not None
                wide = column.astype(np.float64)
                fitted[field.name] = fit_numbers(field.name, field.source, wide, field.asked)
        return fitted

    def _fit_labels(self, train: Callable[[], Iterator[np.ndarray]]) -> None:
        for slot in self.layout.labels:
            field = slot.field
            if field.scanned == "real":
                chunks = [view(chunk.view("<u4"), slot)[:, 0] for chunk in train()]
                values = np.concatenate(chunks).astype(np.float64)
                spread = float(values.std())
                if spread < ROUGH * np.spacing(np.float32(np.abs(values).max())):
                    self.rough.append(field.name)
                if field.task == "regression" and field.asked["kind"] != "passthrough":
                    self._scales[field.name] = float(values.mean()), spread or 1.0

    def _fit_texts(
        self, train: Callable[[], Iterator[np.ndarray]], slots: Sequence[Slot]
    ) -> dict[str, FittedTransform]:
        counts = [np.zeros(len(self._codes[slot.field.name]), np.int64) for slot in slots]
        for chunk in train() if slots else ():
            lanes = chunk.view("<u4")
            for counted, slot in zip(counts, slots, strict=True):
                counted += np.bincount(view(lanes, slot)[:, 0], minlength=len(counted))
        fitted = {}
        for counted, slot in zip(counts, slots, strict=True):
            codes = self._codes[slot.field.name]
            missing = int(counted[codes[None]]) if None in codes else 0
            known = np.array([text is not None for text in codes], bool)
            texts = [text for text in codes if text is not None]
            name, asked = slot.field.name, slot.field.asked
            fitted[name] = fit_texts(name, texts, counted[known], missing, asked)
        return fitted

    def decoding(self, transforms: Mapping[str, FittedTransform]) -> Decoding:
        """Return how the rows are decoded.

        Raises:
            OneClass, DataError: no feature is left. InvalidOption: the shape does not fit.
        """
        labels = tuple(
            replace(
                self._labels[slot.field.name].label(slot.width, self._codes_of(slot.field)),
                scale=self._scales.get(slot.field.name),
            )
            for slot in self.layout.labels
        )
        slots = {slot.field.name: slot for slot in self.layout.slots}
        columns = tuple(
            Column(name=name, kind=self._request.unused[name], width=0)
            if name in self._request.unused
            else Column(
                name=name,
                kind=slots[name].field.kind,
                width=slots[name].width,
                transform=transforms.get(name),
            )
            for name in self._request.names
        )
        self._final = self._final_codes(transforms, labels)
        by_name = {c.name: c for c in columns if c.decoded_width and c.kind != "weight"}
        if all(column.kind == "label" for column in by_name.values()):
            raise DataError(
                "No feature is left: each is dropped, or has one value in all train rows.",
                hint="SELECT a column whose values differ, or drop fewer.",
            )
        return Decoding(
            columns=columns,
            inputs=tuple(
                _input(
                    name,
                    [by_name[column] for column in names if column in by_name],
                    self._request.options,
                )
                for name, names in self._request.inputs.items()
            ),
            labels=labels,
        )

    def adopt(self, decoding: Decoding) -> None:
        """Have rows decoded as those of a dataset are: `recode` puts its classes' codes.

        Raises:
            DataError: they do not fit it.
        """
        columns = {column.name: column for column in decoding.columns}
        for slot in self.layout.slots:
            found = columns.get(slot.field.name)
            if found is None or (found.kind, found.width) != (slot.field.kind, slot.width):
                raise DataError(
                    f"Column {slot.field.name!r} is not what it was when the dataset was made.",
                    hint=FIT_AGAIN,
                )
        for label in decoding.labels:
            known = set(label.classes or ())
            texts = self._codes.get(label.name, self._labels[label.name].classes)
            strange = [text for text in texts if text not in known] if known else []
            if strange:
                raise DataError(
                    f"Label {label.name!r} holds {strange[0]!r}, a class that the dataset lacks.",
                    hint=FIT_AGAIN,
                )
        transforms = {c.name: c.transform for c in decoding.columns if c.transform is not None}
        self._final = self._final_codes(transforms, decoding.labels)

    def _codes_of(self, field: Field) -> Sequence[str]:
        return [text for text in self._codes.get(field.name, ()) if text is not None]

    def _final_codes(
        self, transforms: Mapping[str, FittedTransform], labels: Iterable[Label]
    ) -> dict[str, np.ndarray]:
        """For each text column, the final code of each provisional one; else sorted classes."""
        final = {}
        for name in transforms:
            if name in self._codes:  # the place among all, sorted, so that no scan's order tells
                texts = sorted(self._codes[name], key=lambda text: (text is not None, text))
                place = {text: index for index, text in enumerate(texts)}
                final[name] = np.array([place[text] for text in self._codes[name]])
                self.texts[name] = to_array(texts, pa.string())
        for label in labels:
            if label.classes is not None and label.name in self._codes:
                at = {value: index for index, value in enumerate(label.classes)}
                codes = self._codes[label.name]
                final[label.name] = np.array([at[text] for text in codes if text is not None])
            elif label.classes is not None:
                final[label.name] = np.array([int(value) for value in label.classes])
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


def _key_hashes(values: np.ndarray | Sequence[Any]) -> np.ndarray:
    """Return a hash of each key, uint64."""
    if isinstance(values, np.ndarray):
        return values.astype(np.uint64)
    assert isinstance(values, Texts)
    digests = b"".join(blake3(str(text).encode()).digest(length=8) for text in values.distinct)
    return np.frombuffer(digests, "<u8")[values.places]  # type: ignore[no-any-return]


def _some(values: np.ndarray | Sequence[Any], kept: list[int]) -> np.ndarray | Sequence[Any]:
    if isinstance(values, np.ndarray):
        return values[kept]
    if not isinstance(values, Texts):
        return [values[place] for place in kept]
    used, places = np.unique(values.places[kept], return_inverse=True)
    return Texts([values.distinct[place] for place in used], places)


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
    if shape is None and len(columns) == 1 and (given := columns[0].transform) is not None:
        shape = given.statistics.get("shape")  # a picture's
    return Input(name=name, columns=names, shape=tuple(shape or (width,)), tokenizer=tokenizer)
