"""Several sessions that save, search and take parents at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch import nn

from mmdb import errors
from mmdb.api import Database, connect
from mmdb.store.parents import take_parent
from tests.saved_models import net, rows, save


def test_sessions_that_save_and_search_at_once_agree(postgres_url: str) -> None:
    barrier = threading.Barrier(4)
    child = net(2, 30, 30, 2)

    def work(number: int) -> list[tuple[str, float, str]]:
        with connect(postgres_url) as db:
            barrier.wait(120)
            for k in range(8):
                own = net(2, 10 + 8 * number + k, 30, 2)
                reference = save(db, f"s{number}", own, 0.9)
                found = db.match(own, k=3)
                assert found.parent is not None
                assert (found.parent.model, found.parent.similarity) == (reference, 1.0)
                for one in found.candidates:  # each is, and is as similar as it says
                    assert 0 <= one.similarity <= 1
            barrier.wait(120)
            return answer(db, child)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(work, range(4)))
    with connect(postgres_url) as db:
        fresh = answer(db, child)
        assert len(fresh) == 32
        assert answers == [fresh] * 4
        query = "SELECT model, similarity, reason FROM mmdb.match('s0@1', 32)"
        inside = rows(db, query)
        assert [model for model, *_ in inside] == [
            one.model for one in db.match("s0@1", k=32).candidates
        ]


def answer(db: Database, child: nn.Module) -> list[tuple[str, float, str]]:
    """Return all that a search says, with models in place of versions that depend on time."""
    found = db.match(child, k=99).candidates
    return [(one.model, one.similarity, one.reason) for one in found]


def test_a_parent_can_be_taken_by_several_and_dropped_by_none_meanwhile(postgres_url: str) -> None:
    with connect(postgres_url) as db, connect(postgres_url) as other:
        save(db, "a", net(2, 8, 2))
        chosen = db.match(net(2, 8, 2)).parent
        assert chosen is not None
        with connect(postgres_url) as third:
            third.sql("SET lock_timeout = '200ms'")
            with db.connection.transaction(), other.connection.transaction():
                take_parent(db.connection, chosen)
                take_parent(other.connection, chosen)
                with pytest.raises(errors.LockHeld):
                    third.drop_model("a")
            third.drop_model("a")


def test_outlines_that_are_missing_can_be_made_by_several_at_once(postgres_url: str) -> None:
    with connect(postgres_url) as db:
        for k in range(6):
            save(db, "a", net(2, 8 + k, 2))
        db.sql("DELETE FROM mmdb.outline")
    barrier = threading.Barrier(4)

    def work(_: int) -> list[tuple[str, float, str]]:
        with connect(postgres_url) as db:
            barrier.wait(120)
            return answer(db, net(2, 9, 2))

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(work, range(4)))
    assert answers == [answers[0]] * 4
    with connect(postgres_url) as db:
        assert rows(db, "SELECT count(*) FROM mmdb.outline") == [(6,)]
