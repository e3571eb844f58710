"""The columns of a dataset's query: how a scan reads them, and where each is in a packed row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmdb.data.decoding import ColumnKind, Task
from mmdb.data.options import Options
from mmdb.data.tokenize import Tokenizer
from mmdb.db.connection import ColumnType, Kind
from mmdb.errors import QueryError, RaggedArray

if TYPE_CHECKING:
    from mmdb.data.query import Engine


#: Doubles outside of these become NaN or 0 in float32; PostgreSQL's cast refuses both.
_LARGEST, _SMALLEST = "3.4028235677973366e38", "7.006492321624085e-46"

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
    alias: str | None = None  # in the scan, where that differs

    @property
    def output(self) -> str:
        """The column's name in the scan."""
        return self.alias or self.name

    @property
    def dtype(self) -> str:
        """What its values are kept as."""
        return _DTYPES[self.task or self.kind]

    @property
    def is_coded(self) -> bool:
        """Whether its texts are kept as codes, given in the order of their appearance."""
        return self.scanned == "text" and self.tokenizer is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The columns of a dataset's query, by role, with the dataset's options."""

    fields: tuple[Field, ...]  # in the query's order
    labels: tuple[Field, ...]  # in the order of the targets
    inputs: Mapping[str, tuple[str, ...]]  # columns by input; "" is the only one
    options: Options
    engine: Engine

    @property
    def label(self) -> Field:
        """The column of the first target."""
        return self.labels[0]

    def kinds(self) -> list[tuple[str, Kind]]:
        """Return what the scan is to deliver."""
        return [(field.output, field.scanned) for field in self.fields]

    def cast_select(self, select: str, *, clamped: bool = False) -> str:
        """Return the SELECT with every column cast to what the scan delivers.

        Args:
            clamped: numbers that float32 cannot hold become NaN (too large) or 0 (too small),
                where PostgreSQL's cast ends the query.
        """
        return cast_select(self.fields, self.engine, select, clamped=clamped)


def cast_select(
    fields: tuple[Field, ...], engine: Engine, select: str, *, clamped: bool = False
) -> str:
    """Return a SELECT of fields, cast; see `Request.cast_select`."""
    items = [
        f"{_cast(field, engine, clamped=clamped)} AS {quote(field.output)}" for field in fields
    ]
    return f"SELECT {', '.join(items)} FROM ({select}\n) AS q"


def _cast(field: Field, engine: Engine, *, clamped: bool) -> str:
    name = quote(field.name)
    if field.scanned == "bytes" or (field.scanned == "reals" and engine == "duckdb"):
        return name  # DuckDB's lists are cast when they are read, whatever their nesting
    if field.scanned == "reals":
        return f"{name}::real[]"
    if field.type == "boolean" and field.scanned != "text":
        return f"{name}::integer::{field.scanned}"
    if field.scanned != "real" or field.type == "integer":
        return f"{name}::{field.scanned}"
    return _clamped(name) if clamped else _nearest(name, engine)


def _nearest(name: str, engine: Engine) -> str:
    """Return the cast to the nearest float32; DuckDB's own rounds a DECIMAL twice."""
    if engine == "postgres":
        return f"{name}::real"
    return f"CASE WHEN typeof({name}) LIKE 'DECIMAL%' THEN {name}::text::real ELSE {name}::real END"


def _clamped(name: str) -> str:
    double = f"{name}::double precision"
    return (
        f"CASE WHEN abs({double}) <= {_SMALLEST} THEN 0::real"
        f" WHEN abs({double}) >= {_LARGEST} THEN 'NaN'::real ELSE {double}::real END"
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


def quote(name: str) -> str:
    """Return an identifier as SQL text."""
    return '"' + name.replace('"', '""') + '"'


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
