"""What a session reads of the zoo at its first search, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from torch import nn

from mmdb.api import Database, connect
from mmdb.bench.workload import FULL
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import Query
from mmdb.graph.match.pack import pack
from mmdb.store.models import architectures
from mmdb.store.parents import choosing
from tests.bench.match import session as match_session
from tests.bench.match.families import draw

BATCH = 3


@pytest.fixture
def db(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """Yield an open database that is read in several queries, once on each engine."""
    monkeypatch.setattr(architectures, "_BATCH", BATCH)
    with connect(database_url) as opened:
        yield opened


def net(*widths: int) -> nn.Sequential:
    """Return linear layers with something in between."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def answer(db: Database, child: nn.Module) -> list[tuple[Any, ...]]:
    """Return all that a search says."""
    found = db.match(child, k=99).candidates
    return [(one.model, one.similarity, one.coverage, one.pairs, one.reason) for one in found]


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sessions forget what they have read."""
    monkeypatch.setattr(choosing, "_indexes", WeakKeyDictionary())


CHILD = (2, 30, 31, 2)
WIDTHS = [(2, 20 + 3 * k % 14, 30, 2) for k in range(11)]


def test_a_first_search_answers_as_one_that_saw_each_model_come(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, widths in enumerate(WIDTHS):
        db.save(f"m{number}", net(*widths))
        late = answer(db, net(*CHILD))
    assert len(late) == len(WIDTHS)
    fresh(monkeypatch)
    assert answer(db, net(*CHILD)) == late
    fresh(monkeypatch)
    monkeypatch.setattr(architectures, "_BATCH", 1000)
    assert answer(db, net(*CHILD)) == late


def test_all_is_read_at_the_first_search_and_what_is_new_later(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    rows = type(db.connection).rows

    def counted(connection: Connection, query: Query, /, **parameters: Any) -> list[Row]:
        if query.name == "read_outlines":
            asked.append(len(parameters["architecture_ids"]))
        return rows(connection, query, **parameters)  # type: ignore[arg-type]

    for number, widths in enumerate(WIDTHS):
        db.save(f"m{number}", net(*widths))
    monkeypatch.setattr(type(db.connection), "rows", counted)
    for _ in range(2):
        db.match(net(*CHILD))
        assert asked == [3, 3, 3, 2]
    db.save("new", net(*CHILD))
    assert db.match(net(*CHILD)).candidates[0].model == "new@1"
    assert asked == [3, 3, 3, 2, 1]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM mmdb.outline WHERE {ids}",
        "UPDATE mmdb.outline SET version = 0 WHERE {ids}",
        "UPDATE mmdb.outline SET packed = packed || packed WHERE {ids}",
    ],
)
def test_outlines_that_are_missing_or_damaged_are_made_anew_among_others(
    db: Database, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    for number, widths in enumerate(WIDTHS):
        db.save(f"m{number}", net(*widths))
    whole = answer(db, net(*CHILD))
    found = db.sql("SELECT architecture_id FROM mmdb.outline ORDER BY architecture_id")
    gone = [str(row["architecture_id"]) for row in found][1:6]
    db.sql(change.format(ids=f"architecture_id IN ({', '.join(gone)})"))
    fresh(monkeypatch)
    assert answer(db, net(*CHILD)) == whole


def test_the_bench_leaves_nothing_behind(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_session, "BARS", {4: 60.0, 7: 60.0})
    packed = [pack(drawn).to_bytes() for drawn in draw(np.random.default_rng(0), 7)]
    figures = list(match_session.measure(db, packed, FULL))
    assert [(figure.holds, len(figure.runs)) for figure in figures] == [(True, 3), (None, 3)] * 2
    for table in ("architecture", "outline", "model"):
        assert db.sql(f"SELECT count(*) AS n FROM mmdb.{table}") == [{"n": 0}]


def test_sessions_that_come_and_go_while_others_save_agree(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(architectures, "_BATCH", BATCH)
    barrier = threading.Barrier(4)

    def work(number: int) -> list[tuple[Any, ...]]:
        for k in range(4):  # a session each, whose first search comes while others save
            with connect(postgres_url) as db:
                barrier.wait(120)
                own = net(2, 10 + 4 * number + k, 30, 2)
                saved = db.save(f"s{number}", own).reference
                assert db.match(own, k=2).candidates[0].model == saved
                assert db.match(net(*CHILD)).parent is not None
        with connect(postgres_url) as db:
            barrier.wait(120)
            return answer(db, net(*CHILD))

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(work, range(4)))
    with connect(postgres_url) as db:
        whole = answer(db, net(*CHILD))
        assert len(whole) == 16
        assert answers == [whole] * 4
        inside = db.sql("SELECT model, similarity FROM mmdb.match('s0@1', 99)")
        outside = db.match("s0@1", k=99).candidates
        assert [(row["model"], row["similarity"]) for row in inside] == [
            (one.model, one.similarity) for one in outside
        ]
