"""Creates runs; what cannot train is refused here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmdb.arguments import check_seconds, unfit
from mmdb.data.dataset import StoredDataset, dataset_of, find_dataset
from mmdb.data.functions import find_factories, find_functions
from mmdb.data.names import check_name
from mmdb.db.citus import is_spread
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import (
    AlreadyExists,
    ArchitectureError,
    DatasetDropped,
    InvalidOption,
    ModelNotFound,
)
from mmdb.graph.spec.factory_call import Dtypes
from mmdb.graph.spec.parse import parse
from mmdb.messages import show
from mmdb.store.models.model_rows import find_model
from mmdb.train.candidate.column_arguments import per_group, with_columns
from mmdb.train.candidate.config import architecture_hash
from mmdb.train.candidate.losses import TrainRows
from mmdb.train.candidate.measures import Objective, objective_of
from mmdb.train.drive.candidate_check import CandidateCheck
from mmdb.train.drive.defaults import DEFAULTS_PER_GROUP, defaults_of
from mmdb.train.drive.stack_choice import StackChoice, choose_stack, keep_steps
from mmdb.train.features.feature_planning import check_request, with_transfer
from mmdb.train.ledger.run_options import MOST_MEMBERS, SAME, RunOptions, parse_run_options
from mmdb.train.ledger.shards import SISA, shard_name
from mmdb.train.schedule.workload import STRATEGIES as SCHEDULED
from mmdb.train.search import Start, compares, make_search, possible, to_row
from mmdb.train.values.seeds import candidate_seed
from mmdb.train.values.spec import AUTO_STACK, NO_STACK
from mmdb.train.warm.warm_options import AUTO, OFF, parse_warm_options

_Q = load("runs")

STRATEGIES = ("auto", *SCHEDULED, SISA)


def create_run(
    connection: Connection,
    name: str,
    dataset: str,
    architecture: str | Mapping[str, Any] | None,
    *,
    search: Mapping[str, Any],
    epochs: int | None,
    strategy: str,
    warm_start: str,
    seed: int,
    options: Mapping[str, Any],
    budget: object = None,
    per: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[int, int]:
    """Create a run and its first candidates; return run_id and their number.

    Every distinct model that the search may come to is built once here, as far as that is known,
    so that what cannot train is refused now.

    Args:
        architecture: None: the one that fits the dataset, with a small search of its own.
        epochs: None: one, or as many as that architecture needs.
        warm_start: "off", "auto", or a model to begin with: the version that it names now.
        budget: a time such as "5 min": option `budget_s`.
        per: a column of groups, for each of which the architecture is trained; None: none.
        say: told of what was chosen.
    Raises:
        InvalidName, AlreadyExists, DatasetNotFound, DatasetDropped, ArchitectureError, SearchError
        ModelNotFound: of `warm_start`.
    """
    check_name(name)
    if connection.rows(_Q.find_run, name=name):
        raise AlreadyExists(f"A run named {name!r} exists.")
    found = find_dataset(connection, dataset)
    if found.dropped:
        raise DatasetDropped(f"Dataset {dataset!r} has been dropped.")
    if architecture is None:
        recipe = defaults_of(found) if per is None else DEFAULTS_PER_GROUP
        architecture, epochs = recipe.architecture, epochs or recipe.epochs
        search, options = {"space": recipe.space, **search}, {**recipe.options, **options}
    if budget is not None:
        options = {**options, "budget_s": check_seconds(budget, "budget")}
    epochs = epochs or 1
    _check_choices(epochs, strategy)
    asked = parse_run_options(options, strategy)
    if strategy == "auto" and "mop" not in asked.strategies and is_spread(connection):
        raise InvalidOption(
            f"The strategy is 'auto' of {show(list(asked.strategies))}, and on Citus auto is mop.",
            hint="Name the strategy.",
        )
    warm_start = _parent_of(connection, warm_start, options)
    search = with_transfer(search, options)
    objective = _objective(connection, found, search, options)
    parsed = parse(architecture)
    if asked.ensemble > 1:
        _check_averaged(found, objective, parsed)
    if "network" in parsed:
        raise InvalidOption("The architecture is one of groups.", hint="Pass that of one, and per.")
    if asked.group_patience is not None and (per is None or objective is None):
        raise InvalidOption(
            "options.group_patience is given, and there are no groups or nothing is held out.",
            hint="Pass per, and create the dataset with validation => 0.2.",
        )
    if per is not None:
        _check_grouped(asked, strategy, warm_start)
        if "freeze_up_to" in {**options, **search.get("space", {})}:
            raise InvalidOption("per is given with freeze_up_to.", hint="All of a group trains.")
        parsed = per_group(parsed, found.decoding, per)
    if strategy == SISA:
        shards = _check_sharded(found, asked, parsed, warm_start)
        options = {**options, "shards": shards}
    parsed = with_columns(parsed, found.decoding, find_factories(connection))
    check = _check_of(connection, parsed, found, options)
    configs = possible(search, epochs=epochs, seed=seed)
    for ordinal, config in enumerate(configs):
        _check_candidate(check, config, ordinal)
    plain = [config for config in configs if config.get("freeze_up_to") is None]
    if len(plain) < len(configs):
        check_request(strategy, asked.strategies, warm_start)
    stack: StackChoice | None = None
    if options.get("stack") == AUTO_STACK:
        stack = choose_stack([check.spec(config) for config in plain], check.input_dtype)
        options = {**options, "stack": stack.size if stack.size > 1 else NO_STACK}
        say(stack.reason)
    chosen = make_search(
        search,
        epochs=epochs,
        seed=seed,
        maximize=objective.maximize if objective else False,
        options=options,
        check=check,
    )
    starts = [start for start in chosen.begin() if isinstance(start, Start)]
    added = 0
    if strategy == SISA:
        from mmdb.data.replay_sample import shard_of  # loads all that reads queries
    with connection.transaction():
        for shard in range(shards if strategy == SISA else 0):
            added += create_run(
                connection,
                shard_name(name, shard),
                shard_of(connection, found, shard, shards).name,
                architecture,
                search=search,
                epochs=epochs,
                strategy="mop",
                warm_start=warm_start,
                seed=seed ^ shard,
                options={key: value for key, value in options.items() if key != "shards"},
                say=say,
            )[1]
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
        if not added:
            first = options.get("first_candidate", 0)
            _add_candidates(connection, row["run_id"], parsed, seed, first, starts)
        if stack is not None:
            keep_steps(connection, row["run_id"], stack, [start.config for start in starts])
    return row["run_id"], added or len(starts)


def _check_grouped(asked: RunOptions, strategy: str, warm_start: str) -> None:
    """Check what a run of a network per group is told."""
    for what, wrong in (
        (f"strategy {strategy!r}", not set(asked.strategies or (strategy,)) <= set(SAME)),
        (f"options.stack {asked.stack}", asked.stack > 1),
        (f"options.ensemble {asked.ensemble}", asked.ensemble > 1),
        (f"warm_start {warm_start!r}", warm_start != OFF),
    ):
        if wrong:
            raise InvalidOption(
                f"per is given with {what}.",
                hint="All groups of a candidate train together: use mop, task or auto, no stack, "
                "no ensemble and no warm start.",
            )


def _check_averaged(
    dataset: StoredDataset, objective: Objective | None, architecture: Mapping[str, Any]
) -> None:
    """Check that the mean of candidates can be taken, and be found to be better."""
    if "mean" in architecture:
        raise InvalidOption(
            "options.ensemble is given, and the architecture is a mean already.",
            hint="Leave one of them out.",
        )
    if objective is None or not dataset.decoding.is_one_input or len(dataset.decoding.labels) > 1:
        raise InvalidOption(
            f"options.ensemble is given, and dataset {dataset.name!r} has several inputs or "
            "labels, or holds out nothing.",
            hint="Leave it out: the best candidate is the run's model.",
        )
    if dataset.decoding.task == "next_token":
        raise InvalidOption(
            "options.ensemble is given, and next tokens are predicted.", hint="Leave it out."
        )


def _check_sharded(
    dataset: StoredDataset,
    asked: RunOptions,
    architecture: Mapping[str, Any],
    warm_start: str,
) -> int:
    """Return of how many shards a run of `sisa` is, once it can be."""
    parts = sum(part.role == "train" for part in dataset.partitions)
    shards = asked.shards or parts
    if not 2 <= shards <= min(parts, MOST_MEMBERS):
        raise InvalidOption(
            f"The strategy is 'sisa' with {shards} shards, and dataset {dataset.name!r} has "
            f"{parts} train partitions.",
            hint=f"A shard is one partition or several, and there are 2 to {MOST_MEMBERS} shards: "
            "create the dataset with partitions => 5, or set options.shards.",
        )
    for what, wrong in (
        ("options.ensemble", asked.ensemble > 1),
        ("an architecture that is a mean", "mean" in architecture),
        (f"warm_start {warm_start!r}", warm_start != OFF),
        (
            f"dataset {dataset.name!r}, which has several inputs or labels",
            not dataset.decoding.is_one_input or len(dataset.decoding.labels) > 1,
        ),
        ("a dataset of next tokens", dataset.decoding.task == "next_token"),
    ):
        if wrong:
            raise InvalidOption(
                f"The strategy is 'sisa' with {what}.",
                hint="The run's model is the mean of one model for each shard, which has met the "
                "rows of that shard alone.",
            )
    return shards


def _check_choices(epochs: int, strategy: str) -> None:
    if epochs < 1:
        raise InvalidOption(f"epochs is {epochs}.", hint="It is a whole number from 1.")
    if strategy not in STRATEGIES:
        raise unfit("strategy", strategy, f"Known: {', '.join(STRATEGIES)}.")


def _parent_of(connection: Connection, warm_start: str, options: Mapping[str, Any]) -> str:
    """Return "off", "auto", or the model that candidates are to begin with as `name@version`.

    Raises:
        ModelNotFound, InvalidOption
    """
    if not isinstance(warm_start, str):
        raise unfit("warm_start", warm_start, "It is 'off', 'auto' or a model's name.")
    parse_warm_options(options.get("warm_start"), warm_start)
    if warm_start in (OFF, AUTO):
        return warm_start
    try:
        return find_model(connection, warm_start).reference
    except ModelNotFound as error:
        raise ModelNotFound(
            f"warm_start is {show(warm_start)}, and there is no such model.",
            hint="Pass 'off', 'auto', or a model as name, name@version or name@alias.",
        ) from error


def _objective(
    connection: Connection,
    dataset: StoredDataset,
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
    dataset: StoredDataset,
    options: Mapping[str, Any],
) -> CandidateCheck:
    counts, given = dataset.class_counts, dataset.input_dtype
    dtypes: Dtypes = dict(given) if isinstance(given, dict) else given
    trains = sum(p.row_count for p in dataset.partitions if p.role == "train")
    return CandidateCheck(
        architecture=architecture,
        input_shape=dataset.input_shape,
        input_dtype=dtypes,
        targets=dataset.targets,
        factories=find_factories(connection),
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
    dataset = dataset_of(connection, candidate["dataset_id"])
    architecture = json.loads(candidate["architecture"])
    options = json.loads(candidate["options"])
    _check_of(connection, architecture, dataset, options)(config)
    if config.get("freeze_up_to") is not None:
        check_request(candidate["strategy"], (), candidate["warm_start"])


def _add_candidates(
    connection: Connection,
    run_id: int,
    architecture: Mapping[str, Any],
    seed: int,
    first: int,
    starts: Sequence[Start],
) -> None:
    connection.run_many(
        _Q.add_first_candidate,
        [
            {
                "run_id": run_id,
                "ordinal": ordinal,
                "config": json.dumps(start.config),
                "seed": candidate_seed(seed, first + ordinal),
                "architecture_hash": architecture_hash(architecture, start.config),
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
