"""The bench `scale` drives what it says it drives."""

from __future__ import annotations

from mmdb.api import connect
from tests.bench.scale.bench import _validation
from tests.bench.scale.driver import Load, measure_driver


def test_the_driver_keeps_workers_busy_that_only_wait(installed_duckdb_url: str) -> None:
    load = Load(candidates=8, nodes=4, hop_s=0.1, window_s=0.5)
    with connect(installed_duckdb_url) as db:
        found = measure_driver(db, load)
        assert db.sql("SELECT count(*) AS runs FROM mmdb.run")[0]["runs"] == 0
    assert 0 < found.hops_per_s <= 1.1 * load.nodes / load.hop_s
    assert 0 < found.driver_ms <= found.process_ms
    assert 0 < found.busy < 1 and 0 < found.gap_ms <= found.longest_gap_ms


def test_an_epoch_waits_for_one_node_that_validates_but_not_for_any() -> None:
    (any_of_few, one_of_few), (any_of_many, one_of_many) = _validation(2), _validation(32)
    assert any_of_few.holds and any_of_many.holds
    assert one_of_few.value < 1.2 and one_of_many.value > 2
