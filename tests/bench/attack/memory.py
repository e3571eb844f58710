"""Forty ways and more to take memory in a server that has 4 GB, as a trainer."""

from __future__ import annotations

from itertools import cycle, islice

import psycopg

from mmdb.bench.figures import Figure
from tests.attacks.memory_ways import MEMORY_BYTES, WAYS, Attack
from tests.bench.search.campaigns import none_of
from tests.limited_server import LimitedServer


def search(*, seed: int, cases: int) -> list[Figure]:
    """Go so many ways in turn; the seed says where to begin."""
    ways = islice(cycle(WAYS), seed % len(WAYS), seed % len(WAYS) + cases)
    went, faults = [], []
    with LimitedServer(MEMORY_BYTES) as server:
        attack = Attack(server, is_limited=server.is_limited)
        for way in ways:
            try:
                went.append(attack.go(way))
            except (AssertionError, psycopg.OperationalError) as error:
                faults.append(f"{way.name}: {error}")
                break  # the server ends all sessions when it loses one
        attack.close()
        limit = MEMORY_BYTES if server.is_limited else 0
    for fault in faults:
        print(fault)
    return [
        none_of("sessions ended, and errors that are not mmdb's", len(faults), "sessions"),
        Figure(name="ways that ended in an error of mmdb's", value=_count(went, "MM"), unit="ways"),
        Figure(name="ways that did their work", value=went.count(""), unit="ways"),
        Figure(name="ways that ran into the time limit", value=_timed_out(went), unit="ways"),
        Figure(name="the server's memory", value=limit, unit="bytes"),
    ]


def _count(went: list[str], prefix: str) -> int:
    return sum(state.startswith(prefix) for state in went) - went.count("MM410")


def _timed_out(went: list[str]) -> int:
    return went.count("57014") + went.count("MM410")
