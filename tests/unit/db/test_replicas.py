"""How a server for reads is chosen, set aside and taken back; no database."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mmdb.db.postgres import PostgresConnection
from mmdb.db.server_sessions import Identity, Server, Sessions, least_loaded, pause_s
from mmdb.errors import WrongUrl

URL = "postgresql://ann:secret@replica.example/zoo"
PRIMARY = Identity(
    system_identifier=7,
    database_oid=16384,
    is_replica=False,
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
)
REPLICA = replace(PRIMARY, is_replica=True, started_at=datetime(2026, 1, 2, tzinfo=UTC))


def never() -> PostgresConnection:
    raise AssertionError("Nothing here opens a session.")


@pytest.fixture
def server() -> Server:
    return Server(URL, Sessions(never), longest_pause_s=30.0)


def test_the_server_with_the_least_to_send_is_chosen() -> None:
    assert least_loaded([5, 3, 4], random.Random(0)) == 1


def test_servers_that_are_equally_busy_are_chosen_equally_often() -> None:
    generator = random.Random(0)
    chosen = Counter(least_loaded([2, 9, 2, 2], generator) for _ in range(3000))
    assert set(chosen) == {0, 2, 3}
    assert min(chosen.values()) > 900


def test_pauses_double_up_to_the_longest() -> None:
    assert [pause_s(n, 3.0) for n in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert pause_s(10_000) == 30.0


def test_reads_that_fail_together_set_a_server_aside_once(server: Server) -> None:
    begun = [server.begin(10, now=0.0) for _ in range(8)]
    for failures in begun:
        server.fail(10, "it broke", failures, now=1.0)
    assert (server.failures, server.retry_at, server.load) == (1, 1.5, 0)


def test_after_a_failure_one_read_tries_the_server_and_the_others_keep_away(
    server: Server,
) -> None:
    server.fail(0, "it broke", server.begin(0, now=0.0), now=0.0)
    assert server.retry_at == 0.5
    failures = server.begin(0, now=0.6)
    assert server.retry_at > 0.6
    server.fail(0, "it is still broken", failures, now=0.7)
    assert (server.failures, server.retry_at) == (2, 1.7)


def test_a_server_that_answers_is_in_use_again(server: Server) -> None:
    server.fail(0, "it broke", server.begin(0, now=0.0), now=0.0)
    server.begin(5, now=0.6)
    server.end(5, reads=1)
    status = server.status(now=0.6)
    assert (status.reads, status.load, status.failures, status.wait_s) == (1, 0, 0, 0.0)
    assert status.error == "it broke"


def test_a_status_shows_no_password(server: Server) -> None:
    assert server.status(now=0.0).url == "postgresql://ann@replica.example/zoo"


def test_a_replica_and_the_primary_itself_may_be_read() -> None:
    REPLICA.check_replica(PRIMARY, URL)
    PRIMARY.check_replica(PRIMARY, URL)


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (replace(REPLICA, system_identifier=8), "is another database"),
        (replace(REPLICA, database_oid=16385), "is another database"),
        (replace(REPLICA, is_replica=False), "takes writes of its own"),
    ],
)
def test_what_is_no_replica_of_the_primary_is_refused(identity: Identity, said: str) -> None:
    with pytest.raises(WrongUrl, match=said) as caught:
        identity.check_replica(PRIMARY, URL)
    assert "secret" not in str(caught.value)
