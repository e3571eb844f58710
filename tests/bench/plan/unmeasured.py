"""Plans of first runs, on databases that know nothing of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import mmdb
from mmdb.bench.figures import Figure, at_most
from tests.bench.plan.campaign import create, make_dataset
from tests.bench.plan.sizing import size_for
from tests.bench.plan.workloads import Way, Workload

BAR = 0.25


def first_run_figures(workloads: Sequence[Workload], worker_s: float) -> Iterator[Figure]:
    """Plan and train each search in a fresh file; yield how far the plans were off.

    Args:
        worker_s: about what a search takes on one worker.
    """
    runs = [_first_run(workload, worker_s) for workload in workloads]
    errors = [abs(took / said - 1) for said, took, _ in runs]
    yield at_most("first runs, nothing measured: error, median", [median(errors)], "", BAR)
    yield Figure("first runs, nothing measured: error, worst", max(errors), "")
    within = sum(is_within for _, _, is_within in runs) / len(runs)
    yield Figure("first runs, nothing measured: share within p10 to p90", within, "")


def _first_run(workload: Workload, worker_s: float) -> tuple[float, float, bool]:
    """Return the seconds that a plan said and a run took, and whether that was within its range."""
    size, way = size_for(workload, workload.share * worker_s), Way()
    with TemporaryDirectory(prefix="mmdb-bench-") as folder:
        with mmdb.connect(f"duckdb:///{Path(folder)}/fresh.duckdb") as db:
            make_dataset(db, "first", workload, size.rows)
            run = create(db, "first-run", workload, way, size.epochs)
            run.explain({"strategies": "executed", "workers": way.workers})
            run.train(workers=way.workers)
            (row,) = db.sql("SELECT t_p10, t_p50, t_p90, actual_s FROM mmdb.plan_outcome")
    said, took = float(row["t_p50"]), float(row["actual_s"])
    return said, took, bool(row["t_p10"] <= took <= row["t_p90"])
