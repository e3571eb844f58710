"""What time tells: 1,000 pairs of calls, for what is hidden and for what never was.

The pairs are timed inside the server, by a function of the attacker's own, in an order that is
drawn for each. A sign test says whether one of a pair takes longer: it must be so clear that two
names that never were are not told apart.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import Any

import psycopg

from tests.bench.attack.oracle_calls import Question

PAIRS = 1_000
#: Standard deviations that the share of longer calls is off a half: by chance once in 10^9.
CLEAR = 6.0
#: Microseconds that the medians differ: less is what a place in an index costs, not a row.
LEAST_US = 1.0
_TIME = """
CREATE FUNCTION pg_temp.time_pairs(one text, other text, pairs integer) RETURNS double precision[]
LANGUAGE plpgsql AS $$
DECLARE
    found double precision[] := '{}';
    spent double precision[];
    asked text[] := ARRAY[one, other];
    began timestamptz;
    turn integer;
BEGIN
    FOR pair IN 1..pairs LOOP
        EXIT WHEN clock_timestamp() > statement_timestamp() + interval '1 min';
        spent := '{0,0}';
        turn := (random() < 0.5)::integer;
        FOR step IN 0..1 LOOP
            BEGIN
                began := clock_timestamp();
                EXECUTE asked[1 + (turn + step) % 2];
                RAISE EXCEPTION 'taken back';
            EXCEPTION WHEN OTHERS THEN
                spent[1 + (turn + step) % 2] :=
                    extract(epoch FROM clock_timestamp() - began) * 1e6;
            END;
        END LOOP;
        found := found || (spent[1] - spent[2]);
    END LOOP;
    RETURN found;
END
$$
"""


class Timer:
    """A session that times pairs of calls."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        session.execute("SET statement_timeout = '5 min'")
        session.execute(_TIME.encode())
        self._session = session
        self._texts = psycopg.ClientCursor(session)

    def difference(self, question: Question, pairs: int = PAIRS) -> str:
        """Return by how much what is hidden takes longer, empty if that cannot be told."""
        found = self._measure(question, pairs)
        if not _is_clear(found):
            return ""
        # Two names that never were: what tells them apart tells nothing of the first.
        control = self._measure(replace(question, hidden=_other(question.absent)), pairs)
        again = self._measure(question, pairs)
        if _is_clear(control) or not _is_clear(again):
            return ""
        return f"{median(again):+.1f} us, control {median(control):+.1f} us"

    def _measure(self, question: Question, pairs: int) -> list[float]:
        call = question.function.call().encode()
        given = [
            self._texts.mogrify(call, question.given(guess))
            for guess in (question.hidden, question.absent)
        ]
        row = self._session.execute(
            "SELECT pg_temp.time_pairs(%s, %s, %s)", (*given, pairs)
        ).fetchone()
        return list(row[0]) if row else []


def _is_clear(differences: list[float]) -> bool:
    longer = sum(one > 0 for one in differences)
    count = sum(one != 0 for one in differences)
    off = abs(longer - count / 2) / math.sqrt(max(count, 1) / 4)
    return off > CLEAR and abs(median(differences)) > LEAST_US


def _other(value: Any) -> Any:
    """Return another value that never was, of the same size."""
    if isinstance(value, list):
        return [_other(one) for one in value]
    if isinstance(value, str):
        return value.replace("absent", "nobody")
    if isinstance(value, bytes):
        return bytes(byte ^ 0x5A for byte in value)
    return value + 1_000
