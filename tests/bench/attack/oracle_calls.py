"""What calls tell: each function is asked for what is hidden, and for what never was.

Two answers that differ are a bit learned. Besides the answer itself an attacker sees how many rows
of a table the call read (`pg_stat_xact_all_tables`) and how many pages (EXPLAIN).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.bench.attack.functions import Function, fits, functions_of, good_value
from tests.bench.attack.hidden import CANARY, Hidden

ABSENT, ABSENT_ID = "absent", 987_654_321
#: Procedures and functions that wait, measure or end transactions, whatever they are asked for.
_LONG = {"calibrate", "warm_up", "manage_zoo", "measure"}
#: Functions that look for what is everybody's; `raw` repeats what it is given.
_OPEN = {
    "raw",
    "catalog_find_setting",
    "plan_find_rows",
    "recipes_find_trainer",
    "functions_find_function",
}
_READ = """
SELECT schemaname || '.' || relname, seq_scan, seq_tup_read, coalesce(idx_scan, 0),
    coalesce(idx_tup_fetch, 0), n_tup_ins, n_tup_upd, n_tup_del
FROM pg_catalog.pg_stat_xact_all_tables WHERE schemaname NOT IN ('pg_catalog', 'pg_toast')
"""
_EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) "
_PAGES = re.compile(r"(?:shared|local|temp) [\w= ]+")
#: Keys of what is everybody's, or of what numbers nobody's rows.
_COMMON = {
    "architecture_id", "environment_id", "definition_id", "worker_id", "canonical_hash",
    "prefix_hash", "network_hash",
}  # fmt: skip
#: Measurements of each guess; the least is what counts.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Question:
    """A call that is asked for something hidden in one argument, and for what never was."""

    function: Function
    argument: str
    values: tuple[Any, ...]
    place: int
    hidden: Any
    absent: Any

    def given(self, guess: Any) -> list[Any]:
        """Return the arguments with a guess in place."""
        values = list(self.values)
        values[self.place] = guess
        return values

    def without_guesses(self, said: str) -> str:
        """Return a text without what is asked for, of which both may occur by chance."""
        both = (self.hidden, self.absent)
        texts = [str(one[0] if isinstance(one, list) else one) for one in both]
        return re.sub(rf"(?<!\w)({'|'.join(map(re.escape, texts))})(?!\w)", "?", said)

    def __str__(self) -> str:
        return f"{self.function.title}({self.argument} => {str(self.hidden)[:60]})"


def questions(hidden: Hidden, session: psycopg.Connection[Any]) -> list[Question]:
    """Return what a session may ask: each argument of each function."""
    return [
        question
        for function in functions_of(session)
        if function.name not in _LONG | _OPEN
        for question in _questions(hidden, function)
    ]


def _questions(hidden: Hidden, function: Function) -> Iterator[Question]:
    values = tuple(good_value(name, kind, hidden.own) for name, kind in function.arguments)
    for place, (name, kind) in enumerate(function.arguments):
        for guess, absent in _guesses(hidden, name, kind):
            if kind.endswith("[]"):
                guess, absent = [guess], [absent]
            yield Question(function, name, values, place, guess, absent)


def _guesses(hidden: Hidden, name: str, kind: str) -> list[tuple[Any, Any]]:
    """Return pairs of what is hidden and what never was, for an argument."""
    base = kind.removesuffix("[]")
    singular = name.removesuffix("s") if kind.endswith("[]") else name
    values = [v for v in hidden.values.get(singular, []) if fits(v, base)]
    if base == "text" and name != "architecture":  # of factories, which are everybody's
        forms = [f"data_{CANARY}", f"run_{CANARY}", f"model_{CANARY}", f"model_{CANARY}@1"]
        forms += [f"{kind}_{CANARY}" for kind in ("dataset:data", "run:run", "best", "predicted")]
        forms += [f"model:model_{CANARY}@1", f"{CANARY}_filled"]
        known = [v for v in values if CANARY in v and v not in forms]
        return [(v, v.replace(CANARY, ABSENT)) for v in [*forms, *known[:2]]]
    if base == "bigint" and singular.endswith("_id") and singular not in _COMMON:
        own = [*hidden.own["candidate_id"], *hidden.own["model_id"]]  # either may be a parent
        values = [v for v in values if singular != "parent_id" or v not in own]
        return [(v, ABSENT_ID + k) for k, v in enumerate(values[:3])]
    if base == "bytea" and singular not in _COMMON:
        source = random.Random(name)
        return [(v, source.randbytes(len(v))) for v in values[:3]]
    return []


class Asker:
    """A session that asks and sees what there is to see."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self._session = session

    def differences(self, question: Question) -> dict[str, tuple[str, str]]:
        """Return the ways in which what is hidden is told from what never was."""
        hidden, absent = question.hidden, question.absent
        found: dict[str, tuple[str, str]] = {}
        before = self._see(question, absent)
        seen = self._see(question, hidden)
        after = self._see(question, absent)
        for channel in before:
            # A channel that differs for the same guess says nothing.
            if before[channel] == after[channel] != seen[channel]:
                found[channel] = seen[channel], after[channel]
        return found

    def _see(self, question: Question, guess: Any) -> dict[str, str]:
        many = [self._see_once(question, guess) for _ in range(_TRIES)]
        return {channel: min(one[channel] for one in many) for channel in many[0]}

    def _see_once(self, question: Question, guess: Any) -> dict[str, str]:
        call, values = question.function.call(), question.given(guess)
        if question.function.is_procedure:
            return {"answer": self._answer(call, values, question)}
        with self._session.transaction(force_rollback=True):
            before = self._reads()
            answer = self._answer(call, values, question)
            after = self._reads()
            pages = self._answer(_EXPLAIN + call, values, None)
        return {
            "answer": answer,
            "statistics": str(_more(before, after)),
            "pages": " ".join(_PAGES.findall(pages)),
        }

    def _answer(self, call: str, values: list[Any], question: Question | None) -> str:
        """Return what a call says, without what was asked for."""
        try:
            with nullcontext() if call.startswith("CALL") else self._session.transaction():
                rows = self._session.execute(call.encode(), values).fetchall()
                said = "\n".join(map(str, rows))
        except psycopg.Error as error:
            diag = error.diag
            said = f"{error.sqlstate} {error} {diag.message_detail} {diag.message_hint}"
        return question.without_guesses(said) if question else said

    def _reads(self) -> dict[str, list[int]]:
        """Return what this transaction has read and written of each table so far."""
        rows = self._session.execute(_READ.encode()).fetchall()
        return {table: list(counts) for table, *counts in rows}


def _more(before: dict[str, list[int]], after: dict[str, list[int]]) -> list[tuple[str, list[int]]]:
    """Return by how much the counts of tables have grown, where they have."""
    nothing = [0] * 7
    grown = {
        table: [new - old for new, old in zip(counts, before.get(table, nothing), strict=True)]
        for table, counts in after.items()
    }
    return sorted((table, counts) for table, counts in grown.items() if any(counts))
