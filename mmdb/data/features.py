"""From a query's columns to what is scanned and how: roles, kinds and casts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import cast

from mmdb.data.decoding import ColumnKind, Task
from mmdb.data.query import Engine
from mmdb.db.connection import ColumnType, Kind
from mmdb.errors import DataError, InvalidOption, QueryError, UnknownColumn, UnsupportedType

_NUMBERS = ("integer", "float", "boolean")
_FEATURES: dict[str, tuple[ColumnKind, Kind]] = {
    **dict.fromkeys(_NUMBERS, ("numeric", "real")),
    "text": ("categorical", "text"),
    "float_array": ("tensor", "reals"),
    "bytes": ("bytes", "bytes"),
}

#: Doubles outside of these become NaN or 0 in float32; PostgreSQL's cast refuses both.
_LARGEST, _SMALLEST = "3.4028235677973366e38", "7.006492321624085e-46"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a caller may set besides the arguments of create_dataset."""

    shape: tuple[int, ...] | None = None  # of one row's features
    max_categories: int = 1000  # distinct values of a text feature
    max_classes: int = 10_000
    task: Task | None = None  # None: by the label's type

    @classmethod
    def parse(cls, options: Mapping[str, object] | None) -> Options:
        """Return the options of a call.

        Raises:
            InvalidOption: a name is unknown, or a value has the wrong type or range.
        """
        given = dict(options or {})
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidOption(
                    f"There is no option {name!r}.", hint=f"Options: {', '.join(known)}."
                )
        shape, task = given.get("shape"), given.get("task")
        if shape is not None:
            given["shape"] = _shape(shape)
        for name in ("max_categories", "max_classes"):
            if name in given and not _is_positive(given[name]):
                raise InvalidOption(f"Option {name} must be a positive integer.")
        if task not in (None, "classification", "regression"):
            raise InvalidOption("Option task must be 'classification' or 'regression'.")
        return cls(**given)  # type: ignore[arg-type]


def _shape(value: object) -> tuple[int, ...]:
    if isinstance(value, Sequence) and value and all(_is_positive(size) for size in value):
        return tuple(cast(Sequence[int], value))
    raise InvalidOption("Option shape must be a list of positive integers, such as [3, 32, 32].")


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of the scan."""

    name: str  # in the query
    type: ColumnType
    kind: ColumnKind
    scanned: Kind
    alias: str | None = None  # in the scan, where that differs

    @property
    def output(self) -> str:
        """The column's name in the scan."""
        return self.alias or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a dataset asks of its query: every field, in the query's order."""

    fields: tuple[Field, ...]
    task: Task
    options: Options
    engine: Engine

    @property
    def label(self) -> Field:
        """The column that models predict."""
        return next(field for field in self.fields if field.kind == "label")

    def kinds(self) -> list[tuple[str, Kind]]:
        """Return what the scan is to deliver."""
        return [(field.output, field.scanned) for field in self.fields]

    def cast_select(self, select: str, *, clamped: bool = False) -> str:
        """Return the SELECT with every column cast to what the scan delivers.

        Args:
            clamped: numbers that float32 cannot hold become NaN (too large) or 0 (too small),
                where PostgreSQL's cast ends the query.
        """
        items = [
            f"{_cast(field, self.engine, clamped=clamped)} AS {quote(field.output)}"
            for field in self.fields
        ]
        return f"SELECT {', '.join(items)} FROM ({select}\n) AS q"


def plan_request(
    columns: Sequence[tuple[str, ColumnType]], label: str, options: Options, engine: Engine
) -> Request:
    """Return which role each of the query's columns plays.

    Raises:
        UnknownColumn: the label is no output column.
        UnsupportedType: a column cannot become numbers.
        QueryError: two columns have one name. DataError: there is no feature.
        InvalidOption: the forced task does not fit the label.
    """
    names = [name for name, _ in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise QueryError(
            f"The query returns two columns named {twice!r}.",
            hint="Name each with AS, or list the columns in place of *.",
        )
    if label not in names:
        raise UnknownColumn(
            f"The query returns no column {label!r} to use as the label; "
            f"it returns {', '.join(names)}."
        )
    if len(names) == 1:
        raise DataError(
            f"The query returns only the label {label!r} and no feature.",
            hint="SELECT at least one other column.",
        )
    task = _task_of(dict(columns)[label], label, options.task)
    planned = tuple(
        _label_field(name, kind, task) if name == label else _feature_field(name, kind)
        for name, kind in columns
    )
    return Request(fields=planned, task=task, options=options, engine=engine)


def _feature_field(name: str, kind: ColumnType) -> Field:
    if kind not in _FEATURES:
        raise UnsupportedType(f"Column {name!r} has type {kind}, which has no form in numbers.")
    role, scanned = _FEATURES[kind]
    return Field(name=name, type=kind, kind=role, scanned=scanned)


def _task_of(kind: ColumnType, label: str, forced: Task | None) -> Task:
    if kind not in (*_NUMBERS, "text"):
        raise UnsupportedType(
            f"Label {label!r} has type {kind}; a label is a number, a boolean or a text."
        )
    if kind == "text" and forced == "regression":
        raise InvalidOption(f"Label {label!r} is text, which no regression can predict.")
    return forced or ("regression" if kind == "float" else "classification")


def _label_field(name: str, kind: ColumnType, task: Task) -> Field:
    scanned: Kind = "text" if kind == "text" else "bigint"
    if task == "regression" or kind == "float":
        scanned = "real"
    return Field(name=name, type=kind, kind="label", scanned=scanned)


def _cast(field: Field, engine: Engine, *, clamped: bool) -> str:
    name = quote(field.name)
    if field.scanned == "bytes" or (field.scanned == "reals" and engine == "duckdb"):
        return name  # DuckDB's lists are cast when they are read, whatever their nesting
    if field.scanned == "reals":
        return f"{name}::real[]"
    if field.type == "boolean":
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


def quote(name: str) -> str:
    """Return an identifier as SQL text."""
    return '"' + name.replace('"', '""') + '"'
