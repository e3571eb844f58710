"""Ray Tune: a trial for each candidate, two at once, rows in the object store.

    PYTHON -m tests.bench.train.ray FOLDER

PYTHON is one with `ray[tune]` (measured with 2.60.0), torch and numpy; it needs no mmdb. Actors are
reused from trial to trial, so that torch is loaded once a worker, as everywhere else.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from tests.bench.train.workload import (
    ARRAYS,
    LEARNING_RATES,
    WORKERS,
    Work,
    read_head,
    train_candidate,
    warm_up,
    write_result,
)

WARM = False


def trial(config: dict[str, int], folder: str, arrays: dict[str, np.ndarray]) -> dict[str, float]:
    """Train one candidate; the arrays lie in the object store and are mapped, not copied."""
    global WARM
    torch.set_num_threads(1)
    workload, seeds = read_head(Path(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: the arrays are read-only
        rows = {name: torch.from_numpy(array) for name, array in arrays.items()}
    work = Work(workload=workload, seeds=seeds, **rows)
    if not WARM:
        warm_up(work)
        WARM = True
    started = monotonic()
    accuracy = train_candidate(work, config["ordinal"])
    return {"accuracy": accuracy, "started": started, "ended": monotonic()}


def main() -> None:
    """Train a folder's work and write the result beside it."""
    folder = Path(sys.argv[1]).resolve()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray: Any = importlib.import_module("ray")
    tune: Any = importlib.import_module("ray.tune")
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    arrays = {name: np.load(folder / f"{name}.npy") for name in ARRAYS}
    tuner = tune.Tuner(
        tune.with_resources(
            tune.with_parameters(trial, folder=str(folder), arrays=arrays), {"cpu": 1}
        ),
        param_space={"ordinal": tune.grid_search(list(range(len(LEARNING_RATES))))},
        tune_config=tune.TuneConfig(max_concurrent_trials=WORKERS, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(folder / "ray"), verbose=0),
    )
    results = tuner.fit()
    rows = sorted((r.config["ordinal"], r.metrics) for r in results)
    found = [metrics for _, metrics in rows]
    write_result(
        folder,
        min(metrics["started"] for metrics in found),
        max(metrics["ended"] for metrics in found),
        [metrics["accuracy"] for metrics in found],
    )
    ray.shutdown()


if __name__ == "__main__":
    main()
