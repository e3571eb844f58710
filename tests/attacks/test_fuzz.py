"""Some hundred calls with strange arguments, as many as some seconds allow."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.bench.attack.fuzz import fuzz
from tests.bench.attack.hidden import Hidden, hidden_in
from tests.cluster import Cluster

CASES = 1_000
#: Functions that fail otherwise, wait, and leave something changed.
PLANTED = (
    "CREATE FUNCTION mmdb.planted_raw(model text) RETURNS integer LANGUAGE sql AS 'SELECT 1 / 0'",
    "CREATE FUNCTION mmdb.planted_end(model text) RETURNS boolean LANGUAGE sql"
    " AS 'SELECT pg_terminate_backend(pg_backend_pid())'",
    "CREATE FUNCTION mmdb.planted_lock(model text) RETURNS void LANGUAGE sql"
    " AS 'SELECT pg_advisory_lock(7)'",
)


@pytest.fixture(scope="module")
def hidden(cluster: Cluster, template: str) -> Iterator[Hidden]:
    """Yield a database with teams in which ann hides what she made."""
    with hidden_in(cluster, "mmdb_fuzzed", template) as made:
        yield made


def test_a_strange_call_ends_in_an_error_of_mmdb(hidden: Hidden) -> None:
    found = fuzz(hidden, CASES, random.Random(7))
    assert found.calls == CASES and found.refused > CASES // 10
    assert (found.wrong, found.slow, found.lost, found.changed) == ([], [], [], [])


def test_a_call_that_does_harm_is_found(hidden: Hidden) -> None:
    names = [statement.split()[2].partition("(")[0] for statement in PLANTED]
    hidden.teams.run(*PLANTED)
    try:
        found = fuzz(hidden, CASES // 2, random.Random(8))
    finally:
        hidden.teams.run(*(f"DROP FUNCTION {name}" for name in names))
    assert any("planted_raw" in said and "22012" in said for said in found.wrong)
    assert any("planted_end" in said for said in found.lost)
    assert any("session" in said for said in found.changed)
