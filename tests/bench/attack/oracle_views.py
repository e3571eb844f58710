"""What plans tell: every column of every view is compared with what is hidden in it.

EXPLAIN ANALYZE says of each step how many rows came, how many were removed, what was never executed
and how many pages were read. A comparison with a hidden value must say what one with a value that
never was says: with the equals and order of the type, with LIKE, and with a function of one's own,
which may shout what it is given or fail.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql

from tests.bench.attack.hidden import CANARY, Hidden

_COLUMNS = """
SELECT c.relname, a.attname, a.atttypid::regtype::text
FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_attribute AS a ON c.oid = a.attrelid
WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'v' AND a.attnum > 0
    AND has_column_privilege(c.oid, a.attnum, 'SELECT')
ORDER BY c.relname, a.attnum
"""
_EXPLAIN = "EXPLAIN (ANALYZE, VERBOSE, BUFFERS, TIMING OFF, SUMMARY OFF) "
#: Functions of the attacker's, cheap, so that a plan would call them first.
_SPIES = (
    "CREATE FUNCTION pg_temp.shout(text) RETURNS boolean COST 0.0000001 LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE NOTICE 'heard %', $1; RETURN FALSE; END $$",
    "CREATE FUNCTION pg_temp.fail(text, text) RETURNS boolean COST 0.0000001 LANGUAGE plpgsql AS "
    "$$ BEGIN IF $1 = $2 THEN RAISE 'heard'; END IF; RETURN FALSE; END $$",
)
#: Comparisons of a column with a guess.
COMPARISONS = (
    "{c} = {g}",
    "{c} < {g}",
    "{c}::text LIKE '%%' || {g}::text",
    "pg_temp.fail({c}::text, {g}::text)",
    "1 / (CASE WHEN {c} = {g} THEN 0 ELSE 1 END) = 2",
)
_TRIES = 2
_EXPRESSION = re.compile(r"((?:Filter|Cond|Output|Key): ).*")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view, and something that is hidden in it."""

    view: str
    name: str
    kind: str
    hidden: str
    absent: str
    beside: str

    def comparisons(self) -> list[str]:
        """Return what it is compared by; a pattern is as long as what never was."""
        is_text = self.kind == "text"
        return [one for one in COMPARISONS if is_text or "LIKE" not in one]

    def query(self, comparison: str) -> str:
        """Return the query that compares the column with a guess, `%s`."""
        quoted = '"' + self.name + '"'
        guess = f"%s::{self.kind}"
        return f"SELECT 1 FROM mmdb.{self.view} WHERE " + comparison.format(c=quoted, g=guess)


def columns(hidden: Hidden, role: str) -> list[Column]:
    """Return the columns in which something is hidden from a role."""
    found = []
    with (
        psycopg.connect(hidden.teams.url, autocommit=True) as owner,
        hidden.session(role) as session,
    ):
        for view, name, kind in session.execute(_COLUMNS).fetchall():
            if kind.endswith("[]") or kind == "jsonb":
                continue
            query = sql.SQL("SELECT DISTINCT {c}::text FROM mmdb.{v} WHERE {c} IS NOT NULL").format(
                c=sql.Identifier(name), v=sql.Identifier(view)
            )
            try:
                seen = {value for (value,) in session.execute(query).fetchall()}
            except psycopg.errors.InsufficientPrivilege:
                continue  # what cannot be read tells nothing
            there = {value for (value,) in owner.execute(query).fetchall()} - seen
            if kind == "text":  # other words are those of a view's own text
                there = {value for value in there if CANARY in value}
            if there:
                chosen = min(there)
                found.append(
                    Column(view, name, kind, chosen, absent(chosen, kind), beside(chosen, kind))
                )
    return found


def absent(value: str, kind: str) -> str:
    """Return a value beside another one that no row has."""
    if CANARY in value:
        return value.replace(CANARY, "canarx")
    if kind in ("bigint", "integer", "numeric", "real", "double precision"):
        return str(int(value) + 10**6) if "int" in kind else str(float(value) + 0.25)
    if kind.startswith("timestamp"):
        return re.sub(r"^\d{4}", "2025", value)
    if kind == "boolean":
        return value
    return value[:-1] + ("y" if value[-1:] == "x" else "x")


def beside(value: str, kind: str) -> str:
    """Return the next value after one."""
    if kind in ("bigint", "integer"):
        return str(int(value) + 1)
    if kind == "numeric":
        return value + ("" if "." in value else ".") + "01"
    if kind in ("real", "double precision"):
        return repr(math.nextafter(float(value), math.inf))
    if kind.startswith("timestamp"):
        return str(datetime.fromisoformat(value) + timedelta(microseconds=1))
    return value + "\x01" if kind == "text" else value


class Planner:
    """A session that compares columns and looks at the plans."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self._session = psycopg.ClientCursor(session)
        self._notices: list[str] = []
        session.add_notice_handler(lambda said: self._notices.append(said.message_primary or ""))
        session.execute("SET client_min_messages = notice")
        for spy in _SPIES:
            session.execute(spy.encode())

    def differences(self, column: Column, comparison: str) -> tuple[str, str] | None:
        """Return the plans of a hidden and an absent value, if they differ."""
        query = column.query(comparison)
        # What is less than the value beside it is the same but for what is hidden.
        absent = column.beside if " < " in comparison else column.absent
        before = self._see(query, absent)
        seen = self._see(query, column.hidden)
        after = self._see(query, absent)
        return (seen, after) if before == after != seen else None

    def heard(self, view: str, column: str) -> list[str]:
        """Return what a function of the session's own is given of a column."""
        self._notices.clear()
        self._answer(f'SELECT 1 FROM mmdb.{view} WHERE pg_temp.shout("{column}"::text)', ())
        return [said for said in self._notices if said.startswith("heard ")]

    def _see(self, query: str, guess: str) -> str:
        """Return the least of some plans, without the expressions that hold the guess itself."""
        said = min(self._answer(_EXPLAIN + query, (guess,)) for _ in range(_TRIES))
        return _EXPRESSION.sub(r"\1", said)

    def _answer(self, query: str, values: tuple[str, ...]) -> str:
        try:
            rows = self._session.execute(query.encode(), values).fetchall()
        except psycopg.Error as error:
            return f"{error.sqlstate} {error}"
        return "\n".join(str(row[0]) for row in rows)
