"""A few questions about what another team hides, as many as some seconds allow."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from tests.bench.attack.hidden import Hidden, hidden_in
from tests.bench.attack.oracle import ask, look, plan, time
from tests.bench.attack.oracle_calls import questions
from tests.bench.attack.oracle_rights import leaks
from tests.bench.attack.oracle_views import columns
from tests.cluster import Cluster

#: A function that says what is there, and a view whose reader's own functions come first.
PLANTED = (
    "CREATE FUNCTION mmdb.planted(model text) RETURNS boolean LANGUAGE sql SECURITY DEFINER"
    " AS 'SELECT EXISTS (SELECT FROM mmdb.model AS m WHERE m.name = planted.model)'",
    "CREATE FUNCTION mmdb.planted_slow(model text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER"
    " AS 'BEGIN PERFORM pg_sleep(1e-4) FROM mmdb.model AS m WHERE m.name = model; END'",
    "CREATE VIEW mmdb.planted AS SELECT m.name FROM mmdb.model AS m"
    " WHERE current_user = 'postgres' OR m.owner = current_user",
    "GRANT SELECT ON mmdb.planted TO mmdb_reader",
    "GRANT SELECT (name) ON mmdb.model TO mmdb_reader",
)
TAKEN_BACK = (
    "REVOKE SELECT (name) ON mmdb.model FROM mmdb_reader",
    "DROP VIEW mmdb.planted",
    "DROP FUNCTION mmdb.planted",
    "DROP FUNCTION mmdb.planted_slow",
)


#: Names are one space for all teams, so that whoever takes one learns whether it is taken.
TAKES_A_NAME = re.compile(
    r"add_model|copied_model|save_candidate|create_dataset|create_run|import_"
)


@pytest.fixture(scope="module")
def hidden(cluster: Cluster, template: str) -> Iterator[Hidden]:
    """Yield a database with teams in which ann hides what she made."""
    with hidden_in(cluster, "mmdb_hidden", template) as made:
        yield made


def test_what_a_team_hides_nobody_else_learns(hidden: Hidden) -> None:
    """Whether a guess is there, and nothing else, shows in counters of reads: docs/threats.md."""
    found = look(hidden, 100, random.Random(7))
    told = [leak for leak in found["answer"] if not TAKES_A_NAME.search(leak)]
    assert (found["rights"], told, found["plan"], found["own function"]) == ([], [], [], [])


def test_a_leak_is_found(hidden: Hidden) -> None:
    hidden.teams.run(*PLANTED)
    try:
        with hidden.session("rob") as session:
            asked = [q for q in questions(hidden, session) if "planted" in q.function.name]
            answers = ask(session, asked)["answer"]
            assert [leak.partition("(")[0] for leak in answers] == ["mmdb.planted"] * 3
            assert "planted_slow" in time(session, asked)[0]
            compared = [c for c in columns(hidden, "rob") if c.view == "planted"]
            told = plan(session, compared)
            assert told["own function"] == ["planted.name"] and told["plan"]
            assert "SELECT on mmdb.model" in leaks(session)
    finally:
        hidden.teams.run(*TAKEN_BACK)
