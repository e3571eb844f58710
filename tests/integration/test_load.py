"""The bench `load` from end to end, and whom the system lets compute first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mmdb.api import connect
from mmdb.bench.load import Load, measure
from mmdb.bench.load_clients import saves
from mmdb.errors import InvalidOption
from mmdb.server.session_control import stand_back


def test_a_load_is_measured_and_leaves_nothing_behind(postgres_url: str) -> None:
    share = Load(
        minutes=0.02, clients=1, rate=40, readers=1, savers=0, workers=1, connects=3, rows=400
    )
    with connect(postgres_url) as db:
        figures = {figure.name: figure for figure in measure(db, share)}
        left = db.sql(
            "SELECT (SELECT count(*) FROM mmdb.run) + (SELECT count(*) FROM mmdb.model)"
            " + (SELECT count(*) FROM mmdb.dataset) AS n"
        )
        others = db.sql(
            "SELECT a.application_name FROM pg_stat_activity AS a"
            " WHERE a.datname = current_database() AND a.backend_type = 'client backend'"
            " AND a.pid <> pg_backend_pid() AND a.application_name LIKE 'mmdb worker%'"
        )
    assert left == [{"n": 0}] and others == []
    assert figures["3 connects, one by one: sessions left"].holds is True
    for who in ("predict, 1 clients", "read, 1 clients"):
        assert figures[f"{who}: errors"].value == 0
    predicted = [figures[f"predict, 1 clients: {p}"].value for p in ("p50", "p95", "p99", "max")]
    assert predicted == sorted(predicted) and predicted[0] > 0
    tail = figures["predict, 1 clients: p99 / p50"]
    assert tail.value == predicted[2] / predicted[0]
    growth = figures["growth of the memory of sessions that predict"]
    for figure, bar in ((tail, 3), (growth, 0.05)):
        assert (figure.bar, figure.holds) == (f"<= {bar}", figure.value <= bar)
    assert figures["memory of sessions that predict"].value > 0
    assert figures["train: hops of 1 workers"].value > 0


def test_a_saver_adds_a_version_each_time(installed_duckdb_url: str) -> None:
    with connect(installed_duckdb_url) as db:
        ask = saves(db, "bench", 3)
        for _ in range(3):
            ask()
        rows = db.sql("SELECT model, version, parent FROM mmdb.model_overview ORDER BY version")
    assert [row["version"] for row in rows] == [1, 2, 3]
    assert [row["parent"] for row in rows] == [None, "bench-saved-3@1", "bench-saved-3@2"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_a_worker_stands_back_and_who_asks_does_not(postgres_url: str) -> None:
    with connect(postgres_url) as asking, connect(postgres_url) as working:
        pids = [db.sql("SELECT pg_backend_pid() AS pid")[0]["pid"] for db in (asking, working)]
        for db in (asking, working):  # as if the server had been started with it
            db.sql("DO $$ import os; os.environ['MMDB_NICE'] = '7' $$ LANGUAGE plpython3u")
        asking.sql("SELECT count(*) FROM mmdb.gc()")
        working.sql("SELECT mmdb.warm_up('cpu')")
        assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids] == [0, 7]
        group = Path(f"/proc/{pids[1]}/autogroup")
        assert not group.exists() or group.read_text().split()[-1] == "7"


@pytest.mark.parametrize("text", ["", "much", "-1", "20", "1.5"])
def test_a_wrong_number_for_standing_back_is_named(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("MMDB_NICE", text)
    with pytest.raises(InvalidOption, match="MMDB_NICE"):
        stand_back()
