"""The name of a table that predictions are written to, and what such a table must be."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mmdb import errors

Engine = Literal["postgres", "duckdb"]

#: Columns beside the key, in order, with their types on both engines.
COLUMNS = {
    "prediction": ("text", "VARCHAR"),
    "probability": ("double precision", "DOUBLE"),
    "model": ("text", "VARCHAR"),
    "predicted_at": ("timestamp with time zone", "TIMESTAMP WITH TIME ZONE"),
}
#: Bytes of a name that PostgreSQL keeps; it would cut a longer one without an error.
MAX_NAME_BYTES = 63

_PART = r'(?:"(?:[^"\0]|"")+"|[^\W\d][\w$]*)'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")
_NAMING = 'Write table or schema.table; a part that is no plain name in quotes: "my table".'
_KEY = "Name the column of the query that tells its rows apart."
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The name of a table, as the engine compares it."""

    schema: str | None  # None: by the session's search path
    table: str

    @classmethod
    def parse(cls, text: str, engine: Engine) -> Target:
        """Return the table that `table` or `schema.table` names.

        A part that is no plain name is quoted as in SQL. PostgreSQL folds what is not quoted.

        Raises:
            InvalidName: the text is no such name, or longer than PostgreSQL keeps.
            TargetMismatch: it is in a schema of the system or of mmdb.
        """
        match = _NAME.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise errors.InvalidName(
                f"The target {_shown.repr(text)} names no table.", hint=_NAMING
            )
        schema, table = (None if part is None else _name(part, engine) for part in match.groups())
        assert table is not None
        if schema is not None:
            check_schema(schema)
        return cls(schema=schema, table=table)

    @property
    def sql(self) -> str:
        """The name as SQL text."""
        return _dotted(self.schema, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that is there, or its place."""

    schema: str
    name: str
    catalog: str | None = None  # what DuckDB calls the file
    exists: bool = True
    is_base: bool = True  # no view, foreign table or the like
    columns: tuple[tuple[str, str], ...] = ()  # name and type, without the type's modifiers
    key_cast: str = ""  # PostgreSQL's: what a text is cast to for the first column

    @property
    def sql(self) -> str:
        """The name as SQL text."""
        return _dotted(self.catalog, self.schema, self.name)

    @property
    def reference(self) -> str:
        """The name for people."""
        return f"{self.schema}.{self.name}"


def quote_name(name: str) -> str:
    """Return an identifier as SQL text.

    >>> quote_name('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def check_schema(schema: str) -> None:
    """Raise TargetMismatch where a schema is of the system, of mmdb, or temporary."""
    name = schema.lower()
    if name in ("mmdb", "information_schema") or name.startswith("pg_"):
        raise errors.TargetMismatch(
            f"Predictions are not written to schema {schema}.",
            hint="Name a table in a schema of your own.",
        )


def check_key(key: str) -> None:
    """Raise where the key is no name, or that of another column of the table."""
    if not isinstance(key, str):
        raise errors.InvalidName(f"The key is {_shown.repr(key)}, no column's name.", hint=_KEY)
    if key.lower() in COLUMNS:
        raise errors.TargetMismatch(
            f"The key is named {key}, as a column of the predictions.",
            hint=f"Give it another name in the query: SELECT {key} AS id, ...",
        )


def check_columns(table: Table, key: str, key_type: str, engine: Engine) -> None:
    """Raise TargetMismatch unless a table takes predictions whose key has some name and type."""
    if not table.is_base:
        raise errors.TargetMismatch(f"{table.reference} is no table.")
    types = [(name, pair[engine == "duckdb"]) for name, pair in COLUMNS.items()]
    wanted = [(key, key_type), *types]
    if _compared(table.columns, engine) != _compared(wanted, engine):
        raise errors.TargetMismatch(
            f"Table {table.reference} has the columns {_listed(table.columns)}; "
            f"these predictions have {_listed(wanted)}."
        )


def _compared(columns: Iterable[tuple[str, str]], engine: Engine) -> list[tuple[str, str]]:
    return [(name.lower() if engine == "duckdb" else name, kind) for name, kind in columns]


def _listed(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _dotted(*parts: str | None) -> str:
    return ".".join(quote_name(part) for part in parts if part is not None)


def _name(part: str, engine: Engine) -> str:
    """Return the name that a part of a target stands for.

    Raises:
        InvalidName
    """
    if part.startswith('"'):
        name = part[1:-1].replace('""', '"')
    elif engine == "postgres":  # it folds ASCII alone, where a letter may take several bytes
        name = "".join(c.lower() if c.isascii() else c for c in part)
    else:
        name = part
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise errors.InvalidName(f"The name {_shown.repr(name)} is no text.") from error
    if engine == "postgres" and size > MAX_NAME_BYTES:
        raise errors.InvalidName(
            f"The name {_shown.repr(name)} has {size} bytes; PostgreSQL keeps {MAX_NAME_BYTES}.",
            hint="Choose a shorter one.",
        )
    return name
