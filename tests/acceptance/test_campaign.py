"""A short fault campaign: disturbed runs end, lose no hop and come to the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.faults import campaign
from tests.bench.faults.campaign import Plan
from tests.bench.faults.checks import check, check_decisions
from tests.bench.faults.subjects import file_subject, server_subject


def test_a_server_that_loses_its_connections_and_is_ended() -> None:
    faults = ((0.2, "connections"), (0.6, "server"))
    with server_subject() as subject:
        short = campaign.Campaign([subject], rows=3_000)
        result = short.run(Plan("postgres", "asha", faults, seed=1))
        assert not result.error
        assert result.struck, "nothing has hit"
        with subject.open() as db, pytest.raises(AssertionError, match="hops"):
            db.sql(
                "DELETE FROM mmdb.hop WHERE candidate_id = (SELECT max(candidate_id) FROM mmdb.hop)"
            )
            check(db, "asha-1", "reference-asha")


def test_a_file_whose_owner_is_killed(tmp_path: Path) -> None:
    with file_subject(tmp_path) as subject:
        short = campaign.Campaign([subject], rows=6_000)
        result = short.run(Plan("duckdb", "random", ((0.2, "worker"), (0.5, "driver")), seed=2))
        assert not result.error
        assert result.starts > 1 or result.struck == ["worker at 20%"]
        with subject.open() as db:
            check_decisions(db, "random-1")
            db.sql("DELETE FROM mmdb.decision WHERE kind = 'start' AND ordinal > 2")
            with pytest.raises(AssertionError):
                check_decisions(db, "random-1")


def test_plans_are_drawn_from_the_seed_and_fill_each_disk_once() -> None:
    drawn = campaign.plans(30, 0)
    assert drawn == campaign.plans(30, 0) != campaign.plans(30, 1)
    kinds = [(plan.engine, kind) for plan in drawn for _, kind in plan.faults]
    assert [kinds.count((engine, "disk")) for engine in ("postgres", "duckdb")] == [1, 1]
    for engine, faults in campaign.FAULTS.items():
        assert all((engine, fault) in kinds for fault in faults)
        searches = {plan.search for plan in drawn if plan.engine == engine}
        assert searches == set(campaign.SEARCHES)
