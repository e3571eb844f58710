"""The campaign `fuzz`: calls with strange arguments end in mmdb's errors, and change nothing.

A trainer and a reader call every function that they may with nothing, NaN, the least and the most
numbers, megabytes, deep JSON, names that are none, and what is another team's. A function of mmdb
says what is wrong by an error of mmdb; one of its statements may be refused by PostgreSQL for a
value, a constraint or a right. No session ends, none waits, and no row changes, though some calls
talk to the database over connections of their own.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from mmdb.bench.figures import Figure
from tests.bench.attack.functions import Function, fits, functions_of, good_value
from tests.bench.attack.hidden import ATTACKERS, Hidden, hidden_in
from tests.bench.attack.oracle import server
from tests.bench.search.campaigns import none_of_these

#: Seconds for an answer, and after which a call is ended.
SLOW_S, TIMEOUT_S = 10.0, 20
#: Calls in one transaction, which is rolled back, and transactions between looks at the tables.
BATCH, LOOK = 100, 20
#: Functions that work for as long as they are told, and how seldom they are called.
LONG, SELDOM = {"calibrate", "warm_up", "measure", "manage_zoo", "train"}, 0.002
#: What PostgreSQL may say of a statement's values: data, constraints, rights.
ALLOWED = ("MM", "22", "23", "42501")

MEGABYTE = "x" * (1 << 20)
TEXTS: tuple[str, ...] = (
    "", " ", ".", "x", "X" * 64, "é" * 1000, "a@b@c", "model_own@99999999999999999999", "NaN", "-1",
    "infinity", "'; DROP TABLE mmdb.model; --", "\x1b[31m\u202e\x07", "../../etc/passwd", "%s",
    "{}", "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, "SELECT 1 / 0 AS x, 1 AS y",
    "SELECT x, y FROM public.points", "SELECT id, x FROM public.points", "SELECT", "linear",
    "mlp(hidden=[4])", "mlp(hidden=[-1])", "model:model_own@1", "dataset:data_canary", "data_own",
    "data_canary", "run_canary", "model_canary@1", "model_own", "run_own", "best_own", "auto",
    "mop", "9" * 400, "snapshot", "update", "up", "cpu", "public", "bob", "work.made", "mmdb.model",
    "pg_class",
)  # fmt: skip
WHOLE = (0, 1, -1, 2, 7, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 0.5, 1.0, -1.0, 1e-320, 1.7e308, float("nan"), float("inf"), float("-inf"))
JSON: tuple[str, ...] = (
    "{}", "[]", "null", "1", '"x"', "1e400", "true", '{"": null}', "[" * 3000 + "]" * 3000,
    '{"a":' * 3000 + "1" + "}" * 3000, '{"space": {"lr": [1e400]}}', '{"space": {"lr": []}}',
    '{"space": {"lr": {"low": 1, "high": -1}}}', '{"method": 1}', '{"batch_size": -1}',
    '{"what": "queries", "budget_s": 0.01}', '{"part_id": 1, "candidate_id": -1, "epoch": 1e300}',
    json.dumps({"options": MEGABYTE}), json.dumps({"space": {"lr": [0.1] * 1000}}),
)  # fmt: skip
TIMES = ("-infinity", "infinity", "2026-01-02", "4713-01-01 BC", "294276-12-31")
SPANS = ("0 s", "1 day", "-1 day", "178000000 years", "-178000000 years")
_HASH = "SELECT '{0}', count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) FROM {0} AS t"


@dataclass(slots=True)
class Found:
    """What the calls came to."""

    calls: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    wrong: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def figures(self) -> list[Figure]:
        """Return the figures of the campaign."""
        name = f"{self.calls} calls"
        return [
            Figure(name=f"{name}, refused", value=self.refused, unit="calls"),
            Figure(name=f"{name}, slowest answer", value=self.slowest_s, unit="s"),
            none_of_these(f"{name}, errors that are not mmdb's", self.wrong, "calls"),
            none_of_these(f"{name}, answered after {SLOW_S:g} s", self.slow, "calls"),
            none_of_these(f"{name}, sessions lost", self.lost, "sessions"),
            none_of_these(f"{name}, what changed all the same", self.changed, "tables"),
        ]


def search(*, seed: int, cases: int) -> list[Figure]:
    """Make so many calls, half of them as each attacker; return what they came to."""
    with server() as (cluster, template), hidden_in(cluster, "fuzz", template) as hidden:
        return fuzz(hidden, cases, random.Random(seed)).figures()


def fuzz(hidden: Hidden, cases: int, source: random.Random) -> Found:
    """Make calls; see `search`."""
    found = Found()
    for role in ATTACKERS:
        Fuzzer(hidden, role, source, found).run(cases // len(ATTACKERS))
    return found


class Fuzzer:
    """A role that calls what it may."""

    def __init__(self, hidden: Hidden, role: str, source: random.Random, found: Found) -> None:
        self._hidden, self._role, self._source, self._found = hidden, role, source, found
        self._session = self._open()
        # A row of any type cannot be sent.
        functions = [
            f for f in functions_of(self._session) if "record" not in dict(f.arguments).values()
        ]
        self._seldom = [f for f in functions if f.name in LONG or f.is_procedure]
        often = [f for f in functions if f not in self._seldom]
        self._often = [[f for f in often if f.schema == name] for name in ("mmdb", "mmdb_call")]

    def run(self, count: int) -> None:
        """Make so many calls, many to a transaction that is rolled back."""
        before = fingerprint(self._hidden)
        for batch in range(0, count, BATCH):
            self._session.execute("BEGIN")
            for _ in range(min(BATCH, count - batch)):
                self._call()
            self._rollback()
            if batch // BATCH % LOOK == LOOK - 1 or batch + BATCH >= count:
                after = fingerprint(self._hidden)
                changed = [t for t in after if after[t] != before.get(t)]
                self._found.changed += [f"{table} by {self._role}" for table in changed]
                before = after
        self._session.close()

    def _open(self) -> psycopg.Connection[Any]:
        session = self._hidden.session(self._role)
        with suppress(psycopg.Error):  # a fresh server compiles what compares models: minutes
            session.execute("SELECT * FROM mmdb.manage_zoo(dry_run => TRUE)")
        session.execute(f"SET statement_timeout = '{TIMEOUT_S}s'".encode())
        return session

    def _call(self) -> None:
        is_seldom = self._seldom and self._source.random() < SELDOM
        function = self._source.choice(
            self._seldom if is_seldom else self._source.choice(self._often)
        )
        values = [self._value(name, kind) for name, kind in function.arguments]
        title = f"{self._role} {function.title}({_shown(values)})"
        if function.is_procedure:  # it ends transactions
            self._rollback()
        else:
            self._session.execute("SAVEPOINT before")
        started = time.perf_counter()
        try:
            self._session.execute(function.call().encode(), values)
        except psycopg.Error as error:
            self._refused(function, title, error)
        self._note(title, time.perf_counter() - started)
        if function.is_procedure:
            self._session.execute("BEGIN")
        else:
            self._session.execute("ROLLBACK TO before; RELEASE before")

    def _refused(self, function: Function, title: str, error: psycopg.Error) -> None:
        self._found.refused += 1
        if self._session.closed:
            self._found.lost.append(f"{title}: {error}"[:400])
            self._session = self._open()
            self._session.execute("BEGIN; SAVEPOINT before")
            return
        state = error.sqlstate or ""
        allowed = ALLOWED if function.schema == "mmdb_call" else ("MM", "42501")
        said = f"{error.diag.message_primary} {error.diag.message_hint}"
        if not state.startswith(allowed) or "Traceback" in said:
            self._found.wrong.append(f"{title}: {state} {said}"[:600])

    def _note(self, title: str, seconds: float) -> None:
        self._found.calls += 1
        self._found.slowest_s = max(self._found.slowest_s, seconds)
        if seconds > SLOW_S:
            self._found.slow.append(f"{title}: {seconds:.1f} s")

    def _rollback(self) -> None:
        """End the transaction; whose session it is, and what it holds, is what it was."""
        self._session.execute("ROLLBACK")
        row = self._session.execute(
            "SELECT current_user, current_setting('search_path'), (SELECT count(*) FROM "
            "pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
        ).fetchone()
        if row != (self._role, '"$user", public', 0):
            self._found.changed.append(f"the session of {row}")

    def _value(self, name: str, kind: str) -> Any:
        """Return a value for an argument: none, a good one, a strange one, or many."""
        base, chance = kind.removesuffix("[]"), self._source.random()
        if chance < 0.08:
            return None
        if chance < 0.40:
            return good_value(name, kind, self._hidden.own)
        if kind.endswith("[]"):
            count = self._source.choice((0, 1, 1, 2, 3, 1000))
            return [self._one(name, base) for _ in range(count)]
        return self._one(name, base)

    def _one(self, name: str, base: str) -> Any:
        if self._source.random() < 0.25:  # something of another team's
            values = [v for v in self._hidden.values.get(name, []) if fits(v, base)]
            if values:
                return self._source.choice(values)
        return strange(base, self._source)


def strange(base: str, source: random.Random) -> Any:
    """Return a value of a type as nobody would give it."""
    if base in ("bigint", "integer", "smallint"):
        bits = {"bigint": 63, "integer": 31, "smallint": 15}[base]
        return source.choice([n for n in WHOLE if -(2**bits) <= n < 2**bits])
    if base == "text":
        return MEGABYTE if source.random() < 0.01 else source.choice(TEXTS)
    if base == "bytea":
        return source.choice((b"", b"\0", source.randbytes(32), source.randbytes(5000)))
    if base in ("real", "double precision", "numeric"):
        value = source.choice(FLOATS)
        return {1.7e308: 3e38, 1e-320: 1e-40}.get(value, value) if base == "real" else value
    if base == "boolean":
        return source.random() < 0.5
    known = {"json": JSON, "jsonb": JSON, "interval": SPANS}
    return source.choice(known.get(base, TIMES if base.startswith("timestamp") else ("x",)))


def fingerprint(hidden: Hidden) -> dict[str, tuple[int, int]]:
    """Return rows and a hash of each table."""
    with psycopg.connect(hidden.teams.url, autocommit=True) as owner:
        tables = owner.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' "
            "AND relnamespace::regnamespace::text IN ('mmdb', 'public', 'work')"
        ).fetchall()
        select = (
            "SELECT '{0}', count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) FROM {0} AS t"
        )
        query = " UNION ALL ".join(select.format(table) for (table,) in tables)
        return {name: (n, int(total)) for name, n, total in owner.execute(query.encode())}


def _shown(values: Sequence[Any]) -> str:
    return ", ".join(f"{value!r:.40}" for value in values)
