"""Every bench and every experiment runs small on both engines, and leaves nothing behind.

These tests take minutes, so `pytest` passes them over; `make test-bench` runs them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from math import isfinite
from pathlib import Path

import pytest

from mmdb.api import connect
from mmdb.cli.bench import BENCHES
from tests.bench.__main__ import EXPERIMENTS

SHARE = 0.01
#: Benches that leave databases alone, and those that several processes connect for.
APART, SERVED = ("schedule", "warm"), ("concurrency", "load", "scan", "tables")
#: Benches that fill an empty database, as docs/running.md says, or leave dropped datasets there.
FILLING = ("bi", "scan", "tables")
#: Parts of benches whose others need more than `make setup` installs.
PARTS = {"tables": ["--only", "reading"]}
#: What is known of a machine and not of what was made.
KNOWN = {"profile", "environment"}


def rows(url: str) -> dict[str, int]:
    """Return how many rows each table of a database holds."""
    with connect(url) as db:
        tables = db.sql(
            "SELECT t.table_schema || '.' || t.table_name AS name"
            " FROM information_schema.tables AS t WHERE t.table_type = 'BASE TABLE'"
            " AND t.table_schema NOT IN ('information_schema', 'pg_catalog')"
        )
        names = [row["name"] for row in tables if row["name"].split(".")[1] not in KNOWN]
        return {name: db.sql(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in names}


@pytest.mark.parametrize("name", [*BENCHES, *EXPERIMENTS])
def test_a_bench_runs_small(name: str, database_url: str, tmp_path: Path) -> None:
    engine = "duckdb" if database_url.startswith("duckdb") else "postgres"
    file, before = tmp_path / "report.json", rows(database_url)
    module = ["mmdb.cli", "bench"] if name in BENCHES else ["tests.bench"]
    command = [sys.executable, "-m", *module, name, "--share", str(SHARE), *PARTS.get(name, [])]
    done = subprocess.run(
        [*command, "--database", database_url, "--json", str(file)], capture_output=True, text=True
    )
    if name in SERVED and engine == "duckdb":
        assert done.returncode == 1 and "MM170" in done.stderr, done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert (report["bench"], report["share"]) == (name, SHARE)
    assert report["figures"]
    for figure in report["figures"]:
        assert isfinite(figure["value"]), figure
        assert (figure["bar"], figure["holds"]) == ("", None)
    if name not in (*APART, *SERVED):
        assert any(figure["name"].startswith(engine) for figure in report["figures"])
    if name not in FILLING:
        assert rows(database_url) == before
