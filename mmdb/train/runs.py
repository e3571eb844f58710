"""Creating runs, and reading how far they are."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from mmdb.data.dataset import Dataset, find_dataset
from mmdb.data.names import check_name
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import (
    AlreadyExists,
    ArchitectureError,
    DatasetDropped,
    InvalidOption,
    RunNotFound,
)
from mmdb.graph.architecture import parse
from mmdb.graph.build import build, check_output
from mmdb.train.config import parse_config
from mmdb.train.live import build_live, check_steps
from mmdb.train.schedule import Progress, Schedule, begin
from mmdb.train.search import candidates
from mmdb.train.seeds import candidate_seed
from mmdb.train.turn import ordinal_of, workload

_Q = load("runs")

#: Options of a run and the values that each may take.
OPTIONS: dict[str, tuple[str, ...]] = {
    "order": ("fixed", "free"),  # of the partitions: by the seed alone, or as it goes fastest
    "environment": ("exact", "any"),  # that may go on with the run: one that gives equal bits
}
STRATEGIES = ("auto", "mop")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run, its schedule resumed from its committed hops, and the ids behind the ordinals."""

    run_id: int
    name: str
    task: str
    schedule: Schedule
    candidate_ids: tuple[int, ...]
    part_ids: dict[int, int]  # part ordinal (VALIDATION for the held-out slice) -> part_id


def create_run(
    connection: Connection,
    name: str,
    dataset: str,
    architecture: str | Mapping[str, Any],
    *,
    search: Mapping[str, Any],
    epochs: int,
    strategy: str,
    warm_start: str,
    seed: int,
    options: Mapping[str, Any],
) -> tuple[int, int]:
    """Create a run and its candidates; return run_id and the number of candidates.

    Every candidate's model is built once here, so that what cannot train is refused now.

    Raises:
        InvalidName, AlreadyExists, DatasetNotFound, DatasetDropped, ArchitectureError, SearchError
    """
    check_name(name)
    if connection.rows(_Q.find_run, name=name):
        raise AlreadyExists(f"A run named {name!r} exists.")
    found = find_dataset(connection, dataset)
    if found.dropped:
        raise DatasetDropped(f"Dataset {dataset!r} has been dropped.")
    _check_choices(epochs, strategy, warm_start, options)
    parsed = parse(architecture)
    configs = candidates(search, seed)
    _check_models(connection, parsed, configs, found)
    with connection.transaction():
        (row,) = connection.rows(
            _Q.add_run,
            name=name,
            dataset_id=found.dataset_id,
            architecture=json.dumps(parsed),
            search=json.dumps(search),
            epochs=epochs,
            strategy=strategy,
            warm_start=warm_start,
            seed=seed,
            options=json.dumps(options),
        )
        connection.run_many(
            _Q.add_candidate,
            [
                {
                    "run_id": row["run_id"],
                    "ordinal": ordinal,
                    "config": json.dumps(config),
                    "seed": candidate_seed(seed, ordinal),
                }
                for ordinal, config in enumerate(configs)
            ],
        )
    return row["run_id"], len(configs)


def _check_choices(epochs: int, strategy: str, warm_start: str, options: Mapping[str, Any]) -> None:
    if epochs < 1:
        raise InvalidOption(f"epochs is {epochs}.", hint="It is a whole number from 1.")
    if strategy not in STRATEGIES:
        raise InvalidOption(f"strategy is {strategy!r}.", hint=f"Known: {', '.join(STRATEGIES)}.")
    if warm_start != "off":
        raise InvalidOption(f"warm_start is {warm_start!r}.", hint="Known: off.")
    for key, value in options.items():
        if key not in OPTIONS:
            raise InvalidOption(
                f"A run has no option {key!r}.", hint=f"Known: {', '.join(OPTIONS)}."
            )
        if value not in OPTIONS[key]:
            raise InvalidOption(
                f"options.{key} is {value!r}.", hint=f"Known: {', '.join(OPTIONS[key])}."
            )


def _check_models(
    connection: Connection,
    architecture: Mapping[str, Any],
    configs: Sequence[Mapping[str, Any]],
    dataset: Dataset,
) -> None:
    """Build every distinct model once and pass two rows through it."""
    rows = connection.rows(load("catalog").find_factories)
    factories = {r["name"]: r["target"] for r in rows}
    outputs = len(dataset.classes) if dataset.classes else 1
    checked: dict[str, nn.Module] = {}
    for ordinal, raw in enumerate(configs):
        config = parse_config(raw, dataset.task)
        key = json.dumps(config.arguments, sort_keys=True)
        try:
            if key not in checked:
                shape = dataset.input_shape
                module = build(architecture, config.arguments, shape, outputs, factories)
                check_output(module, shape, outputs)
                checked = {key: module}  # the last one: a grid varies other dimensions meanwhile
        except ArchitectureError as error:
            error.message = f"Candidate {ordinal}: {error.message}"
            raise
        build_live(checked[key], config)
        check_steps(config)


def load_run(connection: Connection, name: str) -> RunState:
    """Return a run as its committed hops left it.

    Raises:
        RunNotFound, DatasetDropped
    """
    found = connection.rows(_Q.find_run, name=name)
    if not found:
        raise RunNotFound(f"There is no run named {name!r}.")
    run = found[0]
    if run["dropped"]:
        raise DatasetDropped(f"Dataset {run['dataset']!r} of run {name!r} has been dropped.")
    parts = connection.rows(load("hops").find_partitions, dataset_id=run["dataset_id"])
    members = connection.rows(_Q.find_candidates, run_id=run["run_id"])
    hops = connection.rows(_Q.find_run_hops, run_id=run["run_id"])
    by_candidate: dict[int, list[Row]] = defaultdict(list)
    for hop in hops:
        by_candidate[hop["candidate_id"]].append(hop)
    progress = {m["ordinal"]: _resume(m, parts, by_candidate[m["candidate_id"]]) for m in members}
    return RunState(
        run_id=run["run_id"],
        name=name,
        task=run["task"],
        schedule=begin(workload(run, parts, len(members)), progress),
        candidate_ids=tuple(m["candidate_id"] for m in members),
        part_ids={ordinal_of(p): p["part_id"] for p in parts},
    )


def _resume(member: Row, parts: Sequence[Row], mine: Sequence[Row]) -> Progress:
    """Return a candidate's progress from its own hops, in order."""
    ordinals = {p["part_id"]: ordinal_of(p) for p in parts}
    epoch, left = divmod(len(mine), len(parts))
    return Progress(
        epoch=epoch,
        visited=tuple(ordinals[h["part_id"]] for h in mine[len(mine) - left :]),
        closed=member["error"] is not None,
        hop_s=sum(h["total_s"] for h in mine) / len(mine) if mine else None,
    )
