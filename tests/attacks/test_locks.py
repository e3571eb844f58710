"""A lock that somebody holds by hand holds others up for a while, and they are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.db.install import install
from mmdb.db.postgres import translate_error
from tests.attacks.scene import Scene

#: Of the victim's login: an attack need not wait for a minute.
IMPATIENT = "ALTER ROLE attack_trainer SET lock_timeout = '200ms'"


@pytest.fixture
def impatient(scene: Scene) -> Iterator[Scene]:
    """Yield the scene with a trainer who waits for no lock for long."""
    scene.owner.execute(IMPATIENT)
    yield scene
    scene.owner.execute("ALTER ROLE attack_trainer RESET lock_timeout")


@contextmanager
def held(scene: Scene, statement: str) -> Iterator[None]:
    """Hold what a statement locks, in the transaction of a session of its own."""
    with psycopg.connect(scene.url) as session:
        session.execute(statement.encode())
        yield
        session.rollback()


def call(scene: Scene, statement: str) -> Any:
    """Call a function by a driver of the trainer's own."""
    with psycopg.connect(scene.url_of("trainer"), autocommit=True) as session:
        return session.execute(statement.encode())


TAG = "SELECT mmdb.tag_model('r', 'k', 'v')"
CALLS = {
    "a row": ("INSERT INTO mmdb.model_tag SELECT model_id, 'k', 'w' FROM mmdb.model", TAG),
    "a table": ("LOCK TABLE mmdb.model_tag", TAG),
    "a view's table": ("LOCK TABLE mmdb.hop", "SELECT * FROM mmdb.leaderboard"),
    "a run's totals": (
        "SELECT pg_advisory_xact_lock(1835889764, run_id::integer) FROM mmdb.run",
        "SELECT * FROM mmdb.train_hop({part}, {candidate})",
    ),
}


@pytest.mark.parametrize("what", list(CALLS))
def test_nobody_waits_for_ever(impatient: Scene, what: str) -> None:
    locks, statement = CALLS[what]
    with impatient.watched(), held(impatient, locks):
        with mmdb.connect(impatient.url_of("trainer")) as db:
            with pytest.raises(errors.LockHeld) as raised:
                db.sql(statement.format(**impatient.ids))
            assert "pg_blocking_pids" in raised.value.hint
        if statement.startswith("SELECT mmdb."):
            with pytest.raises(psycopg.Error) as refused:
                call(impatient, statement)
            assert refused.value.sqlstate == "MM416"
            assert isinstance(translate_error(refused.value), errors.LockHeld)


def test_every_session_has_a_limit_but_one_that_has_its_own(scene: Scene) -> None:
    show = "SELECT current_setting('lock_timeout') AS it"
    with mmdb.connect(scene.url_of("trainer")) as db:
        assert db.sql(show) == [{"it": "1min"}]
    with psycopg.connect(scene.url_of("trainer")) as session:
        for own, then in (("0", "1min"), ("5s", "5s")):
            session.execute(f"SET lock_timeout = '{own}'".encode())
            session.execute(b"SELECT mmdb.node()")
            assert session.execute(show.encode()).fetchall() == [(then,)]
            session.rollback()


def test_an_install_does_not_wait_behind_a_session_for_ever(impatient: Scene) -> None:
    impatient.owner.execute("ALTER ROLE postgres SET lock_timeout = '200ms'")
    try:
        with held(impatient, "LOCK TABLE mmdb.hop"), pytest.raises(errors.LockHeld):
            install(impatient.url)
    finally:
        impatient.owner.execute("ALTER ROLE postgres RESET lock_timeout")
