"""The columns of a dataset's query: how a scan reads them, labels, where each one is packed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mmdb.data.decoding import Class, ColumnKind, Label, Task
from mmdb.data.options import Options
from mmdb.data.tokenize import Tokenizer
from mmdb.data.transform.transform import Source
from mmdb.db.connection import Batch, ColumnType, Kind
from mmdb.db.queries import quote_name
from mmdb.errors import (
    DataError,
    InvalidOption,
    NotFinite,
    OneClass,
    QueryError,
    RaggedArray,
    TooManyCategories,
)

if TYPE_CHECKING:
    from mmdb.data.query import Engine


#: Numbers outside of these become NaN or 0; PostgreSQL's cast refuses both.
_BOUNDS = {
    "real": ("7.006492321624085e-46", "3.4028235677973366e38"),
    "double precision": ("4.94e-324", "1.7976931348623158e308"),
}

#: The names by which the scan has the column that splits the rows, and those of their keys.
SPLIT, KEY = "mmdb split", "mmdb key {}"
_TEMPORAL = ("moment", "clock", "span")
#: What a value is kept as, in a row and in a block, by the column's kind.
_DTYPES = {
    "numeric": "<f4",
    "tensor": "<f4",
    "bytes": "u1",
    "categorical": "<i4",
    "tokens": "<i4",
    "classification": "<i8",
    "regression": "<f4",
    "multilabel": "u1",
    "next_token": "<i4",
    "weight": "<f4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of the scan."""

    name: str  # in the query
    type: ColumnType
    kind: ColumnKind
    scanned: Kind
    task: Task | None = None  # of a label
    is_guessed: bool = False  # whether the task is by the label's type, and might be another
    tokenizer: Tokenizer | None = None
    source: Source | None = None  # of a column that is transformed
    asked: Mapping[str, Any] = field(default_factory=dict)  # how, as `check_asked` returns it
    alias: str | None = None  # in the scan, where that differs

    @property
    def output(self) -> str:
        """The column's name in the scan."""
        return self.alias or self.name

    @property
    def dtype(self) -> str:
        """The numpy dtype of its values in rows and blocks."""
        is_number = self.source not in (None, "text", "picture")
        return "<f8" if is_number else _DTYPES[self.task or self.kind]

    @property
    def is_coded(self) -> bool:
        """Whether its texts are kept as codes, given in the order of their appearance."""
        return self.scanned in ("text", "nullable_text") and self.tokenizer is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The columns of a dataset's query, by role, with the dataset's options."""

    names: tuple[str, ...]  # of all columns, in the query's order
    unused: Mapping[str, ColumnKind]  # those that are not scanned, with what they are
    fields: tuple[Field, ...]  # the others, in the query's order
    labels: tuple[Field, ...]  # in the order of the targets
    inputs: Mapping[str, tuple[str, ...]]  # columns by input; "" is the only one
    options: Options
    engine: Engine
    split: Field | None = None  # whose values say which slice a row is in
    keys: tuple[Field, ...] = ()  # that name a row

    @property
    def label(self) -> Field:
        """The column of the first target."""
        return self.labels[0]

    @property
    def packs(self) -> bool:
        """Whether a row holds several texts, whose next tokens are predicted."""
        return self.label.tokenizer is not None and self.label.tokenizer.pack

    def kinds(self) -> list[tuple[str, Kind]]:
        """Return what the scan is to deliver."""
        return [(field.output, field.scanned) for field in self.scanned]

    @property
    def scanned(self) -> tuple[Field, ...]:
        """The columns of the scan."""
        return (*self.fields, *([] if self.split is None else [self.split]), *self.keys)

    def cast_select(self, select: str, *, clamped: bool = False) -> str:
        """Return the SELECT with every column cast to what the scan delivers.

        Args:
            clamped: numbers that float32 cannot hold become NaN (too large) or 0 (too small),
                where PostgreSQL's cast ends the query.
        """
        return cast_select(self.scanned, self.engine, select, clamped=clamped)


def cast_select(
    fields: tuple[Field, ...], engine: Engine, select: str, *, clamped: bool = False
) -> str:
    """Return a SELECT of fields, cast; see `Request.cast_select`."""
    items = [
        f"{_cast(field, engine, clamped=clamped)} AS {quote_name(field.output)}" for field in fields
    ]
    return f"SELECT {', '.join(items)} FROM ({select}\n) AS q"


def _cast(field: Field, engine: Engine, *, clamped: bool) -> str:
    name = quote_name(field.name)
    if field.scanned in ("bytes", "files") or (field.scanned == "reals" and engine == "duckdb"):
        return name  # DuckDB's lists are cast when they are read, whatever their nesting
    if field.scanned == "reals":
        return f"{name}::real[]"
    if field.scanned in ("text", "nullable_text"):
        return _text(name, field.type, engine)
    if field.scanned == "number":
        if field.type in _TEMPORAL:
            if engine == "postgres":
                return f"date_part('epoch', {name})"
            if field.type != "moment":
                return f"epoch({name})::double"
            # To DuckDB, infinity has no seconds: NULL.
            return f"CASE WHEN isinf({name}) THEN 'inf'::double ELSE epoch({name})::double END"
        if field.type == "boolean":
            return f"{name}::integer::double precision"
        form = _clamped if field.type == "numeric" else _nearest
        return form(name, engine, "double precision")
    if field.scanned == "double":
        return f"{name}::double precision"
    if field.type == "boolean":
        return f"{name}::integer::{field.scanned}"
    if field.scanned != "real" or field.type == "integer":
        return f"{name}::{field.scanned}"
    return (_clamped if clamped else _nearest)(name, engine, "real")


def _text(name: str, kind: ColumnType, engine: Engine) -> str:
    """Return the cast to a text that no session's time zone, or form of dates or bytes, changes."""
    if engine == "duckdb":
        if kind != "moment":
            return f"{name}::text"
        in_utc = f"timezone('UTC', {name}::timestamptz)::text || '+00'"
        return (
            f"CASE WHEN typeof({name}) = 'TIMESTAMP WITH TIME ZONE' THEN {in_utc} "
            f"ELSE {name}::text END"
        )
    if kind == "bytes":  # a backslash is written so whatever standard_conforming_strings says
        coded = f"pg_catalog.encode({name}::bytea, 'hex'::text)"
        return f"(pg_catalog.chr(92) {_JOIN} 'x'::text {_JOIN} {coded})"
    if kind != "moment":
        return f"{name}::text"
    in_utc = _iso_text(f"pg_catalog.timezone('UTC'::text, {name}::timestamptz)")
    base = f"COALESCE({name}, NULL)"  # not a domain, but what it stands for
    has_zone = f"pg_catalog.pg_typeof({base})::oid OPERATOR(pg_catalog.=) {_TIMESTAMPTZ}::oid"
    return f"CASE WHEN {has_zone} THEN {in_utc} {_JOIN} '+00'::text ELSE {_iso_text(name)} END"


#: PostgreSQL's number of the type timestamptz, and its `||` that no other of that name stands for.
_TIMESTAMPTZ, _JOIN = 1184, "OPERATOR(pg_catalog.||)"


def _iso_text(moment: str) -> str:
    quoted = f"pg_catalog.to_json({moment})::text"
    return f"pg_catalog.replace(pg_catalog.btrim({quoted}, '\"'::text), 'T'::text, ' '::text)"


def _nearest(name: str, engine: Engine, to: str) -> str:
    """Return the cast to the nearest number; DuckDB's own rounds a DECIMAL twice."""
    if engine == "postgres":
        return f"{name}::{to}"
    return f"CASE WHEN typeof({name}) LIKE 'DECIMAL%' THEN {name}::text::{to} ELSE {name}::{to} END"


def _clamped(name: str, engine: Engine, to: str) -> str:
    least, most = _BOUNDS[to]
    form = "abs({}) OPERATOR(pg_catalog.{}) {}" if engine == "postgres" else "abs({}) {} {}"
    return (
        f"CASE WHEN {form.format(name, '<=', least)} THEN 0::{to}"
        f" WHEN {form.format(name, '>=', most)} THEN 'NaN'::{to}"
        f" ELSE {_nearest(name, engine, to)} END"
    )


def check_twins(names: Sequence[str], engine: Engine) -> None:
    """Refuse columns that cannot be told apart by name; to DuckDB "A" and "a" are one.

    Raises:
        QueryError
    """
    seen: set[str] = set()
    for name in names:
        key = name.casefold() if engine == "duckdb" else name
        if key not in seen:
            seen.add(key)
            continue
        raise QueryError(
            f"The query returns two columns named {name!r}.",
            hint="Name each with AS, or list the columns in place of *.",
        )


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
    hashes: int  # of 8 bytes, after a row: of its values, then of its keys if it has any

    @property
    def stride(self) -> int:
        """Bytes of a row with its hashes."""
        return self.row_bytes + 8 * self.hashes

    def hashes_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the hashes of rows, uint64 (n, hashes), a view."""
        return rows[:, self.row_bytes :].view("<u8")

    def of(self, *kinds: str) -> list[Slot]:
        """Return the slots of these kinds of column."""
        return [slot for slot in self.slots if slot.field.kind in kinds]


_RANKS = {
    "numeric": 0,
    "tensor": 1,
    "regression": 2,  # beside the other floats
    "weight": 2,
    "categorical": 3,
    "classification": 4,
    "bytes": 5,
    "tokens": 6,
    "next_token": 6,
    "multilabel": 7,
}


def lay_out(request: Request, batch: Batch) -> Layout:
    """Return where each field goes, with the widths of the first rows."""
    slots: dict[str, Slot] = {}
    offset = 0
    for one in sorted(request.fields, key=_rank):
        width = _width(one, batch[one.name])
        if width == 0:
            raise RaggedArray(f"Column {one.name!r} holds empty values.")
        slots[one.name] = Slot(field=one, offset=offset, width=width)
        offset += 4 * slots[one.name].lanes
    return Layout(
        slots=tuple(slots[field.name] for field in request.fields),
        labels=tuple(slots[field.name] for field in request.labels),
        row_bytes=offset,
        hashes=1 + bool(request.keys),
    )


def _rank(field: Field) -> int:
    return len(_RANKS) if field.dtype == "<f8" else _RANKS[field.task or field.kind]


def _width(field: Field, values: np.ndarray | Sequence[Any]) -> int:
    if field.tokenizer is not None:
        return field.tokenizer.length
    return values.shape[1] if isinstance(values, np.ndarray) and values.ndim == 2 else 1


def view(lanes: np.ndarray, slot: Slot) -> np.ndarray:
    """Return the values of a slot in rows of lanes, (n, width), to be read or written."""
    if slot.field.dtype == "u1":
        return lanes.view(np.uint8)[:, slot.offset : slot.offset + slot.width]
    return lanes[:, slot.lane : slot.lane + slot.lanes].view(slot.field.dtype)


#: Whole numbers that float32 holds exactly.
EXACT = 2**24
#: Different whole numbers that are classes although nobody says so; more may be an amount.
GUESSED_CLASSES = 100


def zeros_and_ones(name: str, values: np.ndarray) -> np.ndarray:
    """Return the values of a column of several labels as they are kept, uint8.

    Raises:
        InvalidOption: one is another number.
    """
    other = values[(values != 0) & (values != 1)]
    if len(other):
        raise InvalidOption(
            f"Label {name!r} holds {other[0]}; several labels are each 0 or 1.",
            hint="An array or byte string as a label says of each label whether it holds.",
        )
    return values.astype(np.uint8)


def check_weights(name: str, values: np.ndarray) -> None:
    """Refuse a weight below 0.

    Raises:
        DataError
    """
    if (values < 0).any():
        raise DataError(
            f"Column {name!r} holds the weight {values[values < 0][0]:g}.",
            hint="Weights are numbers from 0; leave out the rows that are not to count.",
        )


def check_finite(not_finite: Mapping[str, int]) -> None:
    """Raise NotFinite where a column has rows with a number that float32 does not hold."""
    found = ", ".join(f"{name} ({n} rows)" for name, n in not_finite.items() if n)
    if found:
        raise NotFinite(f"The query returned NaN, infinite or too large numbers: {found}.")


class LabelValues:
    """Takes the values of one label column, and knows its classes in the end."""

    def __init__(self, field: Field, max_classes: int) -> None:
        self._field, self._limit = field, max_classes
        self._classes: set[int] = set()

    def take(self, values: np.ndarray) -> np.ndarray:
        """Return a batch's values as they are kept: numbers, classes, or 0 and 1.

        Args:
            values: (n,), or (n, width) of several labels.
        Raises:
            InvalidOption: they do not fit the task. TooManyCategories
        """
        if self._field.task == "classification":
            classes = values if values.dtype == np.int64 else self._whole(values)
            self._learn(classes)
            return classes
        if self._field.task == "multilabel":
            return zeros_and_ones(self._field.name, values)
        return values

    def _whole(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            whole = (np.rint(values) == values) & (np.abs(values) <= EXACT)
        if not whole.all():
            raise InvalidOption(
                f"Label {self._field.name!r} holds {values[~whole][0]}, which is no class.",
                hint="A classification of floats needs whole numbers; cast or round them.",
            )
        return values.astype(np.int64)

    def _learn(self, values: np.ndarray) -> None:
        self._classes.update(np.unique(values).tolist())
        if self._field.is_guessed and len(self._classes) > GUESSED_CLASSES:
            said = {"tasks": {self._field.name: "regression"}}
            raise TooManyCategories(
                f"Label {self._field.name!r} holds more than {GUESSED_CLASSES} different whole "
                "numbers, and the options do not say whether these are classes or amounts.",
                hint=f'Pass options {json.dumps(said)}, or "classification" in its place.',
            )
        if len(self._classes) > self._limit:
            raise TooManyCategories(
                f"Label {self._field.name!r} has more than {self._limit} classes.",
                hint='Pass the option "task": "regression", or raise max_classes.',
            )

    @property
    def classes(self) -> set[int]:
        """The whole numbers that were taken as classes."""
        return self._classes

    def label(self, width: int, texts: Sequence[str]) -> Label:
        """Return what the column is.

        Args:
            width: values of a row.
            texts: the distinct ones, of a column of texts.
        Raises:
            OneClass
        """
        task = self._field.task
        assert task is not None
        classes = self._found(texts) if task == "classification" else None
        if classes is not None and len(classes) < 2:
            raise OneClass(f"Label {self._field.name!r} has the single class {classes[0]!r}.")
        tokenizer = self._field.tokenizer
        vocabulary = 0 if tokenizer is None else tokenizer.vocabulary or 0
        name = self._field.name
        return Label(name=name, task=task, width=width, classes=classes, vocabulary=vocabulary)

    def _found(self, texts: Sequence[str]) -> tuple[Class, ...]:
        if self._field.scanned == "text":
            return tuple(sorted(texts))
        values = sorted(self._classes)
        return tuple(map(bool, values)) if self._field.type == "boolean" else tuple(values)


class ClassCounts:
    """Counts the classes of rows whose codes are final, for weights of the loss."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self._counts = {
            label.name: np.zeros(label.target.size, np.int64)
            for label in labels
            if label.task not in ("regression", "next_token")
        }

    def add(self, name: str, values: np.ndarray) -> None:
        """Count rows of a label: class indices (n, 1), or 0 and 1 (n, size)."""
        if name not in self._counts:
            return
        counts = self._counts[name]
        if values.dtype == np.uint8:
            counts += values.sum(0, dtype=np.int64)
        else:
            counts += np.bincount(values[:, 0], minlength=len(counts))

    def by_label(self) -> dict[str, list[int]]:
        """Return rows by class, or with each label, for each label that is no regression."""
        return {name: counts.tolist() for name, counts in self._counts.items()}
