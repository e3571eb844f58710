"""What to tell of a trained run whose best candidate learned nothing worth having."""

from __future__ import annotations

import json

from mmdb.data.dataset import dataset_of
from mmdb.db.connection import Connection
from mmdb.db.queries import load

_Q = load("runs")


def verdict(connection: Connection, run: str) -> str | None:
    """Return why a run's best candidate is no better than a guess, or than a linear model.

    A guess is the most frequent class, or the mean, of the train rows.

    Returns:
        None: it is better, or nothing is held out to tell by.
    """
    rows = connection.rows(_Q.find_best, run=run)
    if not rows or rows[0]["objective"] is None:
        return None
    best = rows[0]
    dataset = dataset_of(connection, best["dataset_id"])
    target = dataset.targets[0]
    if len(dataset.targets) == 1 and target.task == "classification":
        counts = dataset.class_counts.get(target.name, [])
        share = max(counts) / sum(counts) if sum(counts) else 0.0
        if best["accuracy"] is not None and best["accuracy"] <= share:
            return (
                f"Run {run!r}: the best candidate is right in {best['accuracy']:.3f} of the rows "
                f"held out; the most frequent class alone would be in {share:.3f}."
            )
    if len(dataset.targets) == 1 and target.scale is not None:
        if best["rmse"] is not None and best["rmse"] >= target.scale[1]:
            return (
                f"Run {run!r}: the best candidate's rmse is {best['rmse']:.4g} on the rows held "
                f"out; the mean alone would have about {target.scale[1]:.4g}."
            )
    if json.loads(best["config"]).get("architecture.hidden") == []:
        return f"Run {run!r}: no candidate is better than the linear model on the rows held out."
    return None
