"""A run as a folder that TensorBoard shows: curves of each candidate, and the table of them."""

from __future__ import annotations

import json
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from mmdb.data.names import found_run
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import FileExists, InvalidOption
from mmdb.messages import show
from mmdb.standards.tensorboard_events import (
    FAILURE,
    RUNNING,
    SUCCESS,
    end_event,
    experiment_event,
    flat,
    scalar_event,
    start_event,
    version_event,
)
from mmdb.store.files.atomic import replacing, writing
from mmdb.train.candidate.config import parse_config
from mmdb.train.compute.optimizer import advance, make_optimizer, make_schedule

_KEYS = ("lr", "weight_decay", "optimizer", "schedule")


def learning_rates(
    config: Mapping[str, Any], steps: Sequence[int], before: Sequence[int] = ()
) -> list[float]:
    """Return the learning rate at the beginning of each epoch.

    Args:
        config: a candidate's configuration.
        steps: optimizer steps of each of its epochs, in order.
        before: those of the epochs that its parent had behind it.
    """
    parsed = parse_config({key: config[key] for key in _KEYS if key in config}, "regression")
    optimizer = make_optimizer(nn.Linear(1, 1, bias=False), parsed)
    schedule = make_schedule(optimizer, parsed)
    found = [float(optimizer.param_groups[0]["lr"])]
    for count in (*before, *steps[:-1]):
        if schedule is not None:
            with warnings.catch_warnings(action="ignore"):
                advance(schedule, optimizer, count if parsed.schedule_per == "step" else 1)
        found.append(float(optimizer.param_groups[0]["lr"]))
    return found[len(before) :][: len(steps)]


_Q = load("tensorboard")
#: TensorBoard looks for "tfevents" in a name. The same name again: a later export goes over it.
EVENTS = "events.out.tfevents.0.mmdb"


def export_tensorboard(connection: Connection, run: str, folder: str | Path) -> int:
    """Write a run's candidates for TensorBoard, as `Run.tensorboard` does; return how many.

    Each that has begun gets a folder `candidate-<candidate_id>` with one event file; the same rows
    give the same bytes.
    """
    if not isinstance(folder, str | PathLike) or not str(folder):
        raise InvalidOption(f"folder is {show(folder)}.", hint="Pass the path of a folder.")
    found = connection.rows(_Q.find_objective, run=run)
    found_run(found, run)
    objective, target = found[0], Path(folder)
    curves: dict[int, list[Row]] = defaultdict(list)
    for row in connection.rows(_Q.find_curves, run=run):
        curves[row["candidate_id"]].append(row)
    members = connection.rows(_Q.find_members, run=run)
    begun = [m for m in members if m["started_at"] is not None]
    if target.exists() and not target.is_dir():
        raise FileExists(
            f"{target} is there already, and is no folder.", hint="Choose another target."
        )
    for member in begun:
        mine = curves[member["candidate_id"]]
        before = curves[member["parent_id"]] if member["parent_id"] is not None else []
        name = f"candidate-{member['candidate_id']}"
        _write(target / name, _candidate_events(member, mine, before, objective))
    _write(target, _table_events(run, begun, objective))
    return len(begun)


def _write(folder: Path, events: Iterator[bytes]) -> None:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / EVENTS, overwrite=True) as file:
        file.write(b"".join(events))


def _table_events(run: str, members: Sequence[Row], objective: Row) -> Iterator[bytes]:
    configs = [flat(json.loads(member["config"])) for member in members]
    metric = objective["metric"]
    metrics = [] if metric is None else [f"best/{metric}", _tag(metric)]
    at = float(objective["created_at"])
    yield version_event(at)
    yield experiment_event(run, configs, [*metrics, "loss/train", "loss/validation"], at)


def _candidate_events(
    member: Row, mine: Sequence[Row], before: Sequence[Row], objective: Row
) -> Iterator[bytes]:
    config, started_at = json.loads(member["config"]), float(member["started_at"])
    yield version_event(started_at)
    yield start_event(flat(config), f"candidate {member['candidate_id']}", started_at)
    rates = _rates(member, config, mine, before)
    best: float | None = None
    for number, row in enumerate(mine):
        best = _better(best, row["objective"], bool(objective["maximize"]))
        values = _scalars(row) | ({} if rates is None else {"lr": rates[number]})
        if best is not None:
            values[f"best/{objective['metric']}"] = best
        at = float(row["validated_at"] or row["trained_at"])
        for tag, value in values.items():
            yield scalar_event(tag, value, row["epoch"] + 1, at)
    status = {"failed": FAILURE, "training": RUNNING}.get(member["status"], SUCCESS)
    yield end_event(status, float(member["last_hop_at"]))


def _rates(
    member: Row, config: Mapping[str, Any], mine: Sequence[Row], before: Sequence[Row]
) -> list[float] | None:
    """Return the learning rates; None for a clone of which nobody knows where it began."""
    if member["parent_id"] is not None and member["parent_epochs"] is None:
        return None if config.get("schedule") else learning_rates(config, [1] * len(mine))
    passed = [row["steps"] for row in before if row["epoch"] < (member["parent_epochs"] or 0)]
    return learning_rates(config, [row["steps"] for row in mine], passed)


def _scalars(row: Row) -> dict[str, float]:
    """Return an epoch's numbers by tag."""
    found = {
        "loss/train": row["training_loss"],
        "loss/validation": row["validation_loss"],
        "seconds/compute": row["compute_s"],
        "seconds/total": row["total_s"],
    }
    metrics = json.loads(row["metrics"] or "{}")
    found |= {_tag(name): value for name, value in metrics.items()}
    return {tag: float(value) for tag, value in found.items() if isinstance(value, int | float)}


def _tag(metric: str) -> str:
    return f"metrics/{metric}"


def _better(best: float | None, value: float | None, maximize: bool) -> float | None:
    if value is None or not math.isfinite(value):
        return best
    return value if best is None else max(best, value) if maximize else min(best, value)
