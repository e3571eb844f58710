"""The campaign `oracle`: what a team hides, nobody else learns a bit of.

A reader and a trainer of another team look at their rights, at PostgreSQL's catalogs and
statistics, at plans and pages, at errors and at the time that calls take. Whatever they ask for
what is hidden must look like the same for what never was. Each difference is a leak.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from mmdb.bench.figures import Figure
from mmdb.db.install import install
from tests.bench.attack import oracle_rights
from tests.bench.attack.hidden import ATTACKERS, CANARY, Hidden, hidden_in
from tests.bench.attack.oracle_calls import Asker, Question, questions
from tests.bench.attack.oracle_times import Timer
from tests.bench.attack.oracle_views import COMPARISONS, Column, Planner, columns
from tests.bench.search.campaigns import none_of_these
from tests.cluster import Cluster

#: One call of so many is timed.
TIMED_SHARE = 100
#: A statement that takes longer is left.
TIMEOUT = "20s"
CHANNELS = ("rights", "answer", "statistics", "pages", "plan", "own function", "time")

Leaks = dict[str, list[str]]


@contextmanager
def server() -> Iterator[tuple[Cluster, str]]:
    """Yield a server of its own and the name of a database with mmdb, to be copied."""
    with Cluster() as cluster:
        url = cluster.create_database("template_of_attacks")
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("CREATE EXTENSION plpython3u")
        install(url)
        yield cluster, "template_of_attacks"


def search(*, seed: int, cases: int) -> list[Figure]:
    """Ask so many questions as each attacker; return how many of them told something."""
    source = random.Random(seed)
    with server() as (cluster, template), hidden_in(cluster, "oracle", template) as hidden:
        found = look(hidden, cases, source)
    return [
        none_of_these(f"leaks through {channel}", found[channel], "leaks") for channel in CHANNELS
    ]


def look(hidden: Hidden, cases: int, source: random.Random) -> Leaks:
    """Return the leaks by channel."""
    found: Leaks = {channel: [] for channel in CHANNELS}
    for role in ATTACKERS:
        for name, leaks in _look_as(hidden, role, cases, source).items():
            found[name] += [f"{role}: {leak}" for leak in leaks]
    return found


def _look_as(hidden: Hidden, role: str, cases: int, source: random.Random) -> Leaks:
    with hidden.session(role) as session:
        session.execute(f"SET statement_timeout = '{TIMEOUT}'".encode())
        found: Leaks = {"rights": list(oracle_rights.leaks(session))}
        asked = _some(questions(hidden, session), cases, source)
        found |= ask(session, asked)
        found["time"] = time(session, _some(asked, cases // TIMED_SHARE, source))
        found |= plan(session, _some(columns(hidden, role), cases // len(COMPARISONS), source))
    return found


def ask(session: psycopg.Connection[Any], asked: Sequence[Question]) -> Leaks:
    """Ask each question; return what was learned by channel."""
    found: Leaks = {"answer": [], "statistics": [], "pages": []}
    asker = Asker(session)
    for question in asked:
        for channel, (hidden, absent) in asker.differences(question).items():
            found[channel].append(f"{question}: {hidden!r:.160}, but {absent!r:.160} of nothing")
    return found


def time(session: psycopg.Connection[Any], asked: Sequence[Question]) -> list[str]:
    """Time pairs of calls; return those that tell what is hidden."""
    timer = Timer(session)
    differences = ((q, timer.difference(q)) for q in asked if not q.function.is_procedure)
    return [f"{question}: {difference}" for question, difference in differences if difference]


def plan(session: psycopg.Connection[Any], compared: Sequence[Column]) -> Leaks:
    """Compare columns with what is hidden in them; return what plans and functions told."""
    found: Leaks = {"plan": [], "own function": []}
    planner = Planner(session)
    for column in compared:
        name = f"{column.view}.{column.name}"
        if any(CANARY in said for said in planner.heard(column.view, column.name)):
            found["own function"].append(name)
        for comparison in column.comparisons():
            difference = planner.differences(column, comparison)
            if difference is not None:
                found["plan"].append(f"{name} {comparison}: {_first(*difference)}")
    return found


def _first(one: str, other: str) -> str:
    """Return the first line in which two plans differ."""
    pairs = zip(one.splitlines(), other.splitlines(), strict=False)
    return next((f"{a.strip()} <> {b.strip()}" for a, b in pairs if a != b), "more lines")


def _some(items: Sequence[Any], count: int, source: random.Random) -> list[Any]:
    return list(items) if count >= len(items) else source.sample(items, count)
