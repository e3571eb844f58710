"""Reads all that an MLflow tracking server holds, by MLflow's own client. Prints JSON.

mlflow_read.py TRACKING_URI
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import ViewType


def main() -> None:
    """Print experiments with their runs, and registered models with their versions."""
    client = MlflowClient(tracking_uri=sys.argv[1], registry_uri=sys.argv[1])
    experiments = client.search_experiments(view_type=ViewType.ALL)
    found = {
        "experiments": {e.name: runs(client, e.experiment_id) for e in experiments},
        "tags": {e.name: e.tags for e in experiments},
        "models": {m.name: model(client, m) for m in client.search_registered_models()},
    }
    print(json.dumps(found))


def runs(client: MlflowClient, experiment: str) -> list[dict[str, Any]]:
    """Return the runs of an experiment with each metric's points in order."""
    found = []
    for run in client.search_runs([experiment], max_results=10_000):
        points = {
            name: [
                (p.step, p.value if math.isfinite(p.value) else repr(p.value), p.timestamp)
                for p in client.get_metric_history(run.info.run_id, name)
            ]
            for name in run.data.metrics
        }
        found.append(
            {
                "id": run.info.run_id,
                "name": run.info.run_name,
                "status": run.info.status,
                "begun": run.info.start_time,
                "ended": run.info.end_time,
                "params": run.data.params,
                "tags": run.data.tags,
                "metrics": points,
            }
        )
    return found


def model(client: MlflowClient, registered: Any) -> dict[str, Any]:
    """Return a registered model's versions and aliases."""
    versions = client.search_model_versions(f"name = '{registered.name}'")
    return {
        "aliases": {name: int(version) for name, version in registered.aliases.items()},
        "tags": registered.tags,
        "versions": {
            int(v.version): {"run": v.run_id, "source": v.source, "tags": v.tags} for v in versions
        },
    }


if __name__ == "__main__":
    main()
