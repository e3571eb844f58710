"""Copies runs and models into an MLflow tracking server; a second time, only what is new.

A run becomes an experiment, a candidate a run with params, metrics by epoch and tags, a model a
registered model with its versions and aliases. Weights stay in the database: a version's source
says where. What was copied is known by tags, which MLflow keeps.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmdb.data.names import found_run
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import SinkFailed, SinkRefused
from mmdb.messages import show
from mmdb.standards.http_service import HttpService
from mmdb.standards.mlflow_tracking import Tracking

_Q = load("standards")
_CANDIDATE, _DIGEST, _CREATED = "mmdb.candidate", "mmdb.digest", "mmdb.created"
#: What MLflow allows in the name of a param or metric; anything else becomes "_".
_NOT_IN_KEY = re.compile(r"[^\w\-./: ]", re.ASCII)
_KEY_CHARACTERS, _PARAM_CHARACTERS, _TAG_CHARACTERS = 250, 6000, 5000


@dataclass(slots=True, kw_only=True)
class MlflowCounts:
    """What an export sent, and what was there already."""

    experiments: int = 0
    runs: int = 0
    kept_runs: int = 0
    params: int = 0
    metrics: int = 0
    versions: int = 0
    kept_versions: int = 0
    aliases: int = 0
    notes: list[str] = field(default_factory=list)


def export_mlflow(
    connection: Connection,
    url: str,
    run: str | None = None,
    *,
    key: str | None = None,
    prefix: str = "",
) -> MlflowCounts:
    """Copy a run with its models, or all of them: see `Database.export_mlflow`."""
    tracking = Tracking(HttpService(url, key, objects=True))
    experiments = connection.rows(_Q.find_experiments, run=run)
    if run is not None:
        found_run(experiments, run)
    copied = MlflowCounts()
    runs: dict[str, str] = {}  # MLflow's run by candidate
    for experiment in experiments:
        runs |= _copy_run(connection, tracking, experiment, prefix, copied)
    versions = connection.rows(_Q.find_model_versions, run=run)
    _copy_models(connection, tracking, versions, runs, prefix, copied)
    return copied


# -- runs -------------------------------------------------------------------------------------


def _copy_run(
    connection: Connection, tracking: Tracking, experiment: Row, prefix: str, copied: MlflowCounts
) -> dict[str, str]:
    experiment_id = _experiment(tracking, experiment, prefix, copied)
    known_runs = tracking.runs(experiment_id)
    there = {run["tags"][_CANDIDATE]: run for run in known_runs if _CANDIDATE in run["tags"]}
    name = experiment["name"]
    params = _by_run(connection.rows(_Q.find_params, run=name))
    metrics = _by_run(connection.rows(_Q.find_metrics, run=name))
    found: dict[str, str] = {}
    for row in connection.rows(_Q.find_experiment_runs, run=name):
        uuid = row["run_uuid"]
        sent = _params(params[uuid])
        measured = [_metric(m) for m in metrics[uuid]]
        digest = _digest(row, sent, measured)
        known = there.get(uuid)
        if known is not None and known["tags"].get(_DIGEST) == digest:
            copied.kept_runs += 1
            found[uuid] = known["run_id"]
            continue
        tags = {
            "mlflow.source.name": "mmdb",
            _CANDIDATE: uuid,
            "mmdb.run": name,
            "mmdb.dataset": experiment["dataset"],
            "mmdb.strategy": experiment["strategy"],
        }
        if known is None:
            start = row["start_time"] or experiment["creation_time"]
            run_id = tracking.create_run(experiment_id, row["name"], start, tags)
        else:
            run_id = known["run_id"]
        if row["error"]:
            tags["mmdb.error"] = row["error"][:_TAG_CHARACTERS]
        tracking.log(run_id, measured, sent, tags)
        tracking.update_run(run_id, row["status"], row["end_time"])
        tracking.log(run_id, [], [], {_DIGEST: digest})  # last: before, it is not whole
        copied.runs += 1
        copied.params += len(sent)
        copied.metrics += len(measured)
        found[uuid] = run_id
    return found


def _experiment(tracking: Tracking, row: Row, prefix: str, copied: MlflowCounts) -> str:
    """Return the id of a run's experiment, made if it is not there."""
    name, created = prefix + row["name"], str(row["creation_time"])
    found = tracking.find_experiment(name)
    if found is None:
        copied.experiments += 1
        tags = {"mmdb.run": row["name"], _CREATED: created, "mmdb.dataset": row["dataset"]}
        return tracking.create_experiment(name, tags)
    if found["tags"].get(_CREATED) != created:
        raise SinkFailed(
            f"MLflow has an experiment {show(name)} that is not of this run.",
            hint="Pass another --prefix, or rename the experiment.",
        )
    if found.get("lifecycle_stage") == "deleted":
        raise SinkFailed(
            f"MLflow's experiment {show(name)} is deleted.",
            hint="Restore it, or pass another --prefix.",
        )
    return str(found["experiment_id"])


def _params(rows: Iterable[Row]) -> list[dict[str, str]]:
    """Return params; of several that MLflow would take for one, the later have a number."""
    found: dict[str, str] = {}
    for row in rows:
        key = name = key_text(row["key"])
        number = 2
        while key in found:
            key = f"{name[: _KEY_CHARACTERS - 8]} {number}"
            number += 1
        found[key] = (row["value"] or "")[:_PARAM_CHARACTERS]
    return [{"key": key, "value": value} for key, value in found.items()]


def _metric(row: Row) -> dict[str, Any]:
    return {
        "key": key_text(row["key"]),
        "value": "NaN" if row["is_nan"] else _finite(row["value"]),
        "timestamp": row["timestamp"],
        "step": row["step"],
    }


def _finite(value: float) -> float | str:
    """Return a number as JSON of protocol buffers has it."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def key_text(key: str) -> str:
    """Return a name that MLflow allows for a param or metric.

    >>> key_text("architecture.hidden"), key_text('f1 "macro"'), key_text("a//b")
    ('architecture.hidden', 'f1 _macro_', 'a__b')
    """
    text = _NOT_IN_KEY.sub("_", key)[:_KEY_CHARACTERS]
    if posixpath.normpath(text) == text and not text.startswith(("..", "/")) and text != ".":
        return text
    text = text.replace("/", "_")
    return f"_{text}" if text.startswith("..") or text in ("", ".") else text


def _digest(row: Row, params: Sequence[Any], metrics: Sequence[Any]) -> str:
    state = [row["status"], row["start_time"], row["end_time"], row["error"], params, metrics]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def _by_run(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    grouped: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["run_uuid"]].append(row)
    return grouped


# -- models -----------------------------------------------------------------------------------


def _copy_models(
    connection: Connection,
    tracking: Tracking,
    versions: Sequence[Row],
    runs: Mapping[str, str],
    prefix: str,
    copied: MlflowCounts,
) -> None:
    """Copy versions, the lowest first: without gaps, MLflow numbers them as mmdb does."""
    there: dict[str, dict[str, str]] = {}
    numbers: dict[tuple[str, int], tuple[str, str]] = {}  # name and version in MLflow
    for row in versions:
        name, reference = model_name(prefix + row["name"]), f"{row['name']}@{row['version']}"
        if name not in there:
            there[name] = tracking.versions(name)
        number = there[name].get(reference)
        if number is None:
            run_id = runs.get(row["run_id"] or "")
            size = str(row["byte_count"])
            tags = {"mmdb.model": reference, "mmdb.approach": row["approach"], "mmdb.bytes": size}
            known = {"mmdb.dataset": row["dataset"], "mmdb.parent": row["parent"]}
            tags |= {key: value for key, value in known.items() if value is not None}
            number = tracking.create_version(name, source_text(row["source"]), run_id, tags)
            copied.versions += 1
            if (name, number) != (prefix + row["name"], str(row["version"])):
                copied.notes.append(f"{reference} is version {number} of {name} in MLflow.")
        else:
            copied.kept_versions += 1
        numbers[row["name"], row["version"]] = (name, number)
    for row in connection.rows(_Q.find_tags):
        if (row["model"], row["version"]) in numbers:
            name, number = numbers[row["model"], row["version"]]
            key, value = key_text(row["key"]), row["value"][:_TAG_CHARACTERS]
            tracking.tag_version(name, number, key, value)
    for row in connection.rows(load("exchange").list_aliases):
        if (row["model"], row["version"]) in numbers:
            _copy_alias(tracking, *numbers[row["model"], row["version"]], row["alias"], copied)


def model_name(name: str) -> str:
    """Return a name that MLflow allows for a registered model.

    >>> model_name("vision/digits-v1.2"), model_name("../a")
    ('vision.digits-v1.2', '_...a')
    """
    text = re.sub("[/:]", ".", name)
    return f"_{text}" if text.startswith("..") or text == "." else text


def source_text(source: str) -> str:
    """Return a source that MLflow takes: one whose path has no dots or gaps.

    >>> source_text("mmdb:/vision/digits/3"), source_text("mmdb:/../1")
    ('mmdb:/vision/digits/3', 'mmdb:/_../1')
    """
    start, slash, path = source.partition("/")
    parts = (f"_{part}" if part in ("", ".", "..") else part for part in path.split("/"))
    return start + slash + "/".join(parts)


def _copy_alias(
    tracking: Tracking, name: str, version: str, alias: str, copied: MlflowCounts
) -> None:
    try:
        tracking.set_alias(name, alias, version)
        copied.aliases += 1
    except SinkRefused as error:
        if error.status != 400:
            raise
        copied.notes.append(f"MLflow takes no alias {alias} of {name}: {error.message}")
