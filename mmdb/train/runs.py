"""Creating runs, and reading how far they are."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmdb.data.dataset import Dataset, find_dataset
from mmdb.data.functions import find_functions
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
from mmdb.graph.sizes import Dtypes
from mmdb.train.check import CandidateCheck
from mmdb.train.losses import TrainRows
from mmdb.train.objective import Objective, objective_of
from mmdb.train.run_options import RunOptions, parse_run_options
from mmdb.train.schedule import Progress, Workload
from mmdb.train.search import Search, Start, compares, make_search, possible, to_row
from mmdb.train.seeds import MERGE, VALIDATION, candidate_seed
from mmdb.train.turn import ordinal_of, workload

_Q = load("runs")

STRATEGIES = ("auto", "mop", "task", "model_average", "data_parallel")


@dataclass(slots=True, kw_only=True)
class Member:
    """A candidate of a run, and how far it is."""

    candidate_id: int
    ordinal: int
    config: dict[str, Any]
    error: str | None = None  # what ended it
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run with its candidates as their committed hops left them."""

    run_id: int
    name: str
    epochs: int
    metric: str | None
    maximize: bool | None
    search: dict[str, Any]
    raw_options: dict[str, Any]
    options: RunOptions
    workload: Workload
    members: tuple[Member, ...]  # by ordinal
    part_ids: dict[int, int]  # part ordinal (VALIDATION for the held-out slice) -> part_id

    @property
    def visits(self) -> int:
        """Hops of an epoch of a candidate, the validation included."""
        return len(self.part_ids)


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
    """Create a run and its first candidates; return run_id and their number.

    Every distinct model that the search may come to is built once here, as far as that is known,
    so that what cannot train is refused now.

    Raises:
        InvalidName, AlreadyExists, DatasetNotFound, DatasetDropped, ArchitectureError, SearchError
    """
    check_name(name)
    if connection.rows(_Q.find_run, name=name):
        raise AlreadyExists(f"A run named {name!r} exists.")
    found = find_dataset(connection, dataset)
    if found.dropped:
        raise DatasetDropped(f"Dataset {dataset!r} has been dropped.")
    _check_choices(epochs, strategy, warm_start)
    parse_run_options(options, strategy)
    objective = _objective(connection, found, search, options)
    parsed = parse(architecture)
    check = _check_of(connection, parsed, found, options)
    for ordinal, config in enumerate(possible(search, epochs=epochs, seed=seed)):
        _check_candidate(check, config, ordinal)
    chosen = make_search(
        search,
        epochs=epochs,
        seed=seed,
        maximize=objective.maximize if objective else False,
        options=options,
        check=check,
    )
    starts = [start for start in chosen.begin() if isinstance(start, Start)]
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
            metric=objective.metric if objective else None,
            maximize=objective.maximize if objective else None,
        )
        _add_candidates(connection, row["run_id"], seed, starts)
    return row["run_id"], len(starts)


def _check_choices(epochs: int, strategy: str, warm_start: str) -> None:
    if epochs < 1:
        raise InvalidOption(f"epochs is {epochs}.", hint="It is a whole number from 1.")
    if strategy not in STRATEGIES:
        raise InvalidOption(f"strategy is {strategy!r}.", hint=f"Known: {', '.join(STRATEGIES)}.")
    if warm_start != "off":
        raise InvalidOption(f"warm_start is {warm_start!r}.", hint="Known: off.")


def _objective(
    connection: Connection,
    dataset: Dataset,
    search: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Objective | None:
    """Return what the run's candidates are compared by; None where nothing is held out for it.

    Raises:
        InvalidOption: the metric is unknown, or something asks for one and there is none.
    """
    objective = objective_of(dataset.targets, options, find_functions(connection))
    if any(partition.role == "validation" for partition in dataset.partitions):
        return objective
    if "metric" in options or compares(search, options):
        raise InvalidOption(
            f"Candidates are to be compared, and dataset {dataset.name!r} holds out nothing.",
            hint="Create the dataset with validation => 0.2.",
        )
    return None


def _check_of(
    connection: Connection,
    architecture: Mapping[str, Any],
    dataset: Dataset,
    options: Mapping[str, Any],
) -> CandidateCheck:
    rows = connection.rows(load("catalog").find_factories)
    counts, given = dataset.class_counts, dataset.input_dtype
    dtypes: Dtypes = dict(given) if isinstance(given, dict) else given
    trains = sum(p.row_count for p in dataset.partitions if p.role == "train")
    return CandidateCheck(
        architecture=architecture,
        input_shape=dataset.input_shape,
        input_dtype=dtypes,
        targets=dataset.targets,
        factories={r["name"]: r["target"] for r in rows},
        functions=find_functions(connection),
        train_rows=TrainRows(count=trains, by_class=counts) if counts else None,
        options=options,
    )


def _check_candidate(check: CandidateCheck, config: Mapping[str, Any], ordinal: int) -> None:
    try:
        check(config)
    except ArchitectureError as error:
        error.message = f"Candidate {ordinal}: {error.message}"
        raise


def check_config(connection: Connection, candidate: Row, config: Mapping[str, Any]) -> None:
    """Check another configuration of a candidate's run.

    Args:
        candidate: a row of `find_candidate`.
    Raises:
        ArchitectureError, InvalidHyperparameter, InvalidOption, FunctionFailed
    """
    dataset = find_dataset(connection, candidate["dataset"])
    architecture = json.loads(candidate["architecture"])
    _check_of(connection, architecture, dataset, json.loads(candidate["options"]))(config)


def _add_candidates(
    connection: Connection, run_id: int, seed: int, starts: Sequence[Start]
) -> None:
    connection.run_many(
        _Q.add_first_candidate,
        [
            {
                "run_id": run_id,
                "ordinal": ordinal,
                "config": json.dumps(start.config),
                "seed": candidate_seed(seed, ordinal),
            }
            for ordinal, start in enumerate(starts)
        ],
    )
    connection.run_many(
        _Q.add_decision,
        [
            to_row(start)
            | {
                "run_id": run_id,
                "ordinal": ordinal,
                "candidate": ordinal,
                "detail": json.dumps(to_row(start)["detail"]),
            }
            for ordinal, start in enumerate(starts)
        ],
    )


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
    rows = connection.rows(_Q.find_candidates, run_id=run["run_id"])
    by_candidate: dict[int, list[Row]] = defaultdict(list)
    for hop in connection.rows(_Q.find_run_hops, run_id=run["run_id"]):
        by_candidate[hop["candidate_id"]].append(hop)
    merged: dict[int, int] = defaultdict(int)
    if run["strategy"] == "model_average":
        for merge in connection.rows(_Q.find_run_merges, run_id=run["run_id"]):
            merged[merge["candidate_id"]] += 1
    options = json.loads(run["options"])
    return RunState(
        run_id=run["run_id"],
        name=name,
        epochs=run["epochs"],
        metric=run["metric"],
        maximize=run["maximize"],
        search=json.loads(run["search"]),
        raw_options=options,
        options=parse_run_options(options, run["strategy"]),
        workload=workload(run, parts),
        members=tuple(
            Member(
                candidate_id=row["candidate_id"],
                ordinal=row["ordinal"],
                config=json.loads(row["config"]),
                error=row["error"],
                progress=_resumed(
                    by_candidate[row["candidate_id"]],
                    parts,
                    merged[row["candidate_id"]] if run["strategy"] == "model_average" else None,
                ),
            )
            for row in rows
        ),
        part_ids={ordinal_of(p): p["part_id"] for p in parts},
    )


def _resumed(mine: Sequence[Row], parts: Sequence[Row], merged: int | None) -> Progress:
    """Return a candidate's progress.

    Args:
        mine: its hops, in order.
        merged: epochs whose states are averaged; None where they are not.
    """
    ordinals = {p["part_id"]: ordinal_of(p) for p in parts}
    if merged is None:
        epoch, left = divmod(len(mine), len(parts))
        visited = [ordinals[h["part_id"]] for h in mine[len(mine) - left :]]
    else:
        validated = sum(ordinals[h["part_id"]] == VALIDATION for h in mine)
        epoch = validated if VALIDATION in ordinals.values() else merged
        visited = [ordinals[h["part_id"]] for h in mine if h["epoch"] == epoch]
        visited += [MERGE] if merged > epoch else []
    mean_s = sum(h["total_s"] for h in mine) / len(mine) if mine else None
    return Progress(epoch=epoch, visited=tuple(visited), hop_s=mean_s)


def new_members(connection: Connection, run_id: int, count: int) -> list[tuple[Row, Member]]:
    """Return the candidates of a run from ordinal `count` on: clones that someone has made."""
    rows = connection.rows(_Q.find_new_candidates, run_id=run_id, ordinal=count)
    return [
        (
            row,
            Member(
                candidate_id=row["candidate_id"],
                ordinal=row["ordinal"],
                config=json.loads(row["config"]),
            ),
        )
        for row in rows
    ]


def search_of(run: RunState) -> Search:
    """Return a run's search, as if nothing had happened yet."""
    return make_search(
        run.search,
        epochs=run.epochs,
        seed=run.workload.seed,
        maximize=bool(run.maximize),
        options=run.raw_options,
    )
