"""Ray Tune on the search of the experiment `many`: a trial for each rate, two at once.

    PYTHON -m tests.bench.many.ray_search WORK.npz

PYTHON is one with `ray[tune]` (measured with 2.60.0), torch and numpy; it needs no mmdb. Prints the
seconds from the first trial's first step to the last one's last, and the share of rows that the
networks get right in the mean. Trials follow one another in the same processes.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import nn


def trial(config: dict[str, float], work: dict[str, np.ndarray]) -> dict[str, float]:
    """Train one network."""
    torch.set_num_threads(1)
    # Copied: what lies in the object store is not to be written to.
    x, y = torch.tensor(work["x"]), torch.tensor(work["y"])
    count = len(x) - int(work["held_out"])
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=config["lr"])
    started = monotonic()
    for _ in range(int(work["epochs"])):
        for at in torch.randperm(count).split(int(work["batch"])):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[at]), y[at]).backward()
            optimizer.step()
    ended = monotonic()
    with torch.no_grad():
        right = float((network(x[count:]).argmax(1) == y[count:]).float().mean())
    return {"accuracy": right, "started": started, "ended": ended}


def main() -> None:
    """Train all of them, and print what it took."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray: Any = importlib.import_module("ray")
    tune: Any = importlib.import_module("ray.tune")
    with np.load(sys.argv[1]) as found:
        work = dict(found)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(trial, work=work), {"cpu": 1}),
            param_space={"lr": tune.grid_search(work["rates"].tolist())},
            tune_config=tune.TuneConfig(max_concurrent_trials=2, reuse_actors=True),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        done = [result.metrics for result in tuner.fit()]
    ray.shutdown()
    seconds = max(one["ended"] for one in done) - min(one["started"] for one in done)
    right = float(np.mean([one["accuracy"] for one in done]))
    print(json.dumps({"seconds": seconds, "accuracy": right}))


if __name__ == "__main__":
    main()
