"""The columns that a scan of a dataset's query reads: their roles, kinds and casts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmdb.data.decoding import ColumnKind
from mmdb.data.options import Options
from mmdb.data.target import Task
from mmdb.data.tokenize import Tokenizer
from mmdb.db.connection import ColumnType, Kind
from mmdb.errors import QueryError

if TYPE_CHECKING:  # loads a parser of SQL
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
