"""Named queries: every statement that Python sends lives in `sql/queries/*.sql`.

A query starts with `-- name: find_run`, one comment line that says what it does, and holds one
statement. Placeholders are `%(name)s::type`; the cast tells all three drivers the type. On
PostgreSQL those that touch mmdb's tables, or ask who calls, are functions of schema `mmdb_call`,
see `mmdb.db.definers`: who calls them needs no right on a table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

_INDENT = re.compile(r"\n +")
_NAME = re.compile(r"^-- name: (\w+)\n-- (.+)\n", re.MULTILINE)
_INSERT = re.compile(
    r"INSERT INTO (?P<table>[\w.]+) \((?P<columns>[\w\s,]+)\)\s+"
    r"VALUES \((?:\s*%\(\w+\)s::(?:double precision|\w+(?:\[\])?),?)+\s*\)"
    r"(?P<rest>\s*ON CONFLICT(?: \(\w+(?:, \w+)*\))? DO NOTHING)?"
)
_OF_SESSION = re.compile(r"\bpg_(try_)?advisory_lock(_shared)?\(|^LISTEN\b", re.M)
_OWN = re.compile(r"(?<!')\bmmdb\.(?:\w+\b(?!\()|caller)")
#: Files whose statements run as they are: calls of functions, what comes before there are any, and
#: what the server says of its sessions to some and not to others.
_OPEN = {"api", "citus", "doctor", "install", "metrics", "nodes", "operations"}
_PLACEHOLDER = re.compile(r"%\((\w+)\)s::((?:double precision|\w+)(?:\[\])?)")


def sql_directory(part: str) -> Path:
    """Return the folder `sql/<part>` or `udf`, in a checkout or in an installed wheel."""
    package = Path(__file__).resolve().parents[1]
    top, _, rest = part.partition("/")
    inside = package / f"_{top}" / rest
    return inside if inside.is_dir() else package.parent / part


@dataclass(frozen=True)
class Query:
    """One named statement, in the form that each driver takes."""

    name: str
    meaning: str
    sql: str  # PostgreSQL, psycopg placeholders
    file: str = ""

    @cached_property
    def parameters(self) -> dict[str, str]:
        """Names of the placeholders and their SQL types, in order of appearance."""
        return dict(_PLACEHOLDER.findall(self.sql))

    @cached_property
    def numbered(self) -> str:
        """The statement with `$1, $2, …` in the order of `parameters`, for plpy."""
        order = {name: f"${i}" for i, name in enumerate(self.parameters, 1)}
        return _PLACEHOLDER.sub(lambda m: f"{order[m[1]]}::{m[2]}", self.sql).replace("%%", "%")

    @cached_property
    def needs_session(self) -> bool:
        """Whether what it does lasts as long as the session: a lock, or listening."""
        return _OF_SESSION.search(self.sql) is not None

    @cached_property
    def definer(self) -> str | None:
        """The function of `mmdb_call` that PostgreSQL has for the statement, if it has one."""
        is_open = self.file in _OPEN or not self.file or self.file.startswith("bench")
        if is_open or self.sql.startswith("VACUUM") or not _OWN.search(self.sql):
            return None
        return f"{self.file}_{self.name}"

    @cached_property
    def call(self) -> str:
        """The statement as a call of its function where it has one, psycopg placeholders."""
        if self.definer is None:
            return self.sql
        # psycopg sends lists as text unless it is told otherwise, which doubles the size of bytes.
        given = ", ".join(
            f"%({name}){'b' if kind == 'bytea[]' else 's'}::{kind}"
            for name, kind in self.parameters.items()
        )
        return f"SELECT * FROM mmdb_call.{self.definer}({given})"

    @cached_property
    def numbered_call(self) -> str:
        """The same with `$1, $2, …`, for plpy."""
        if self.definer is None:
            return self.numbered
        given = ", ".join(f"${k}::{kind}" for k, kind in enumerate(self.parameters.values(), 1))
        return f"SELECT * FROM mmdb_call.{self.definer}({given})"

    @cached_property
    def many(self) -> Query | None:
        """A plain INSERT with an array for each column; None if it is none, or holds arrays."""
        match = self._insert
        if match is None or match["rest"] or any("[" in kind for kind in self.parameters.values()):
            return None
        given = ", ".join(f"%({name})s::{kind}[]" for name, kind in self.parameters.items())
        insert = f"INSERT INTO {match['table']} ({match['columns']}) SELECT * FROM unnest({given})"
        return Query(f"{self.name}_rows", f"{self.meaning} Many of them.", insert, self.file)

    @cached_property
    def duckdb(self) -> str:
        """The statement in DuckDB's dialect with `$name` placeholders."""
        from mmdb.db.ddl import translate_query  # loads a parser of SQL

        named = _PLACEHOLDER.sub(lambda m: f"${m[1]}::{m[2]}", self.sql).replace("%%", "%")
        return translate_query(named)

    @cached_property
    def _insert(self) -> re.Match[str] | None:
        """The statement taken apart, if it inserts each of its parameters once."""
        match = _INSERT.fullmatch(self.sql)
        columns = match["columns"].count(",") + 1 if match else 0
        return match if columns == len(self.parameters) else None

    @cached_property
    def _plain(self) -> re.Match[str]:
        match = self._insert
        if match is None or match["rest"]:
            raise ValueError(f"{self.name} is not a plain INSERT of its parameters.")
        return match

    @cached_property
    def copy(self) -> str:
        """The COPY that takes the rows of a plain INSERT, binary."""
        columns = self._plain["columns"]
        return f"COPY {self.target} ({columns}) FROM STDIN (FORMAT BINARY)"

    @cached_property
    def target(self) -> str:
        """The table of a plain INSERT."""
        return self._plain["table"]

    def insert_from(self, table: str) -> str | None:
        """Return DuckDB's INSERT of a table whose columns are the parameters, if it is one."""
        match = self._insert
        if match is None:
            return None
        names = ", ".join(self.parameters)
        target = f"{match['table']} ({match['columns']})"
        return f"INSERT INTO {target} SELECT {names} FROM {table}{match['rest'] or ''}"


class Queries:
    """The queries of one file, by name."""

    def __init__(self, path: Path) -> None:
        parts = _NAME.split(path.read_text())[1:]
        self._by_name = {
            name: Query(name, meaning, _without_indents(sql.strip().removesuffix(";")), path.stem)
            for name, meaning, sql in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        }

    def __getattr__(self, name: str) -> Query:
        try:
            return self._by_name[name]
        except KeyError:
            raise AttributeError(name) from None

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._by_name.values())


def _without_indents(sql: str) -> str:
    """Return SQL without what is there for the reader of the file: it travels with every call."""
    return sql if "$$" in sql else _INDENT.sub("\n", sql)  # in a body, indents may be code


@cache
def load(name: str) -> Queries:
    """Return the queries of `sql/queries/<name>.sql`."""
    return Queries(sql_directory("sql/queries") / f"{name}.sql")


def quote_name(name: str) -> str:
    """Return an identifier as SQL text.

    >>> quote_name('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a text as a literal of SQL, for statements that take no parameters."""
    return "'" + text.replace("'", "''") + "'"
