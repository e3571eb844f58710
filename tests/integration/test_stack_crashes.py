"""A process that is killed in the midst of stacked hops loses nothing: the same bits come out."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

import mmdb
from tests.cluster import ROOT
from tests.points import fill, logged

RUNS: dict[str, dict[str, Any]] = {
    "stack": {
        "architecture": "mlp(hidden=[8], dropout=0.2)",
        "search": {"space": {"lr": [0.01 * k for k in range(1, 9)], "optimizer": ["adam"]}},
        "options": {"stack": 4},
    },
    "groups": {
        "architecture": "mlp(hidden=[4], dropout=0.2)",
        "search": {"space": {"lr": [0.01, 0.02], "optimizer": ["adam"], "batch_size": [4]}},
        "per": "color",
    },
}
#: Trains a run and ends itself, as by SIGKILL, once so many hops are done.
KILLED = """
import os, signal, sys
import mmdb
from tests.points import Acting
with mmdb.connect(sys.argv[1]) as db:
    watch = Acting(int(sys.argv[3]), lambda: os.kill(os.getpid(), signal.SIGKILL))
    db.run(sys.argv[2]).train(workers=2, watch=watch)
"""


@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_goes_on_to_the_same_bits(database_url: str, name: str) -> None:
    with mmdb.connect(database_url) as db:
        fill(db)
        db.create_dataset("colors", "SELECT a, b, color, y FROM points", partitions=2, seed=1,
                          options={"transforms": {"color": "index"}})  # fmt: skip
        asked = {"dataset": "colors", "epochs": 3, "seed": 5, **RUNS[name]}
        for run in ("whole", "killed"):
            db.create_run(run, **asked)
        db.run("whole").train(workers=2)
    for hops in (5, 9):
        command = [sys.executable, "-c", KILLED, database_url, "killed", str(hops)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
    with mmdb.connect(database_url) as db:
        before = len(logged(db, "killed"))
        db.run("killed").train(workers=2)
        found, wanted = logged(db, "killed"), logged(db, "whole")
        assert 0 < before < len(found)
        assert [row[:2] + row[3:] for row in found] == [row[:2] + row[3:] for row in wanted]
