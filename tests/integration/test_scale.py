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


def test_the_one_node_that_validates_is_what_an_epoch_waits_for() -> None:
    few, many = _validation(2).value, _validation(32).value
    assert few < 1.2 and many > 2
