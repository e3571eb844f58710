"""Creating runs: everything that cannot train is refused here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mmdb.data.dataset import Dataset, find_dataset
from mmdb.data.functions import find_factories, find_functions
from mmdb.data.names import check_name
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
from mmdb.train.candidate.config import architecture_hash
from mmdb.train.candidate.losses import TrainRows
from mmdb.train.candidate.measures import Objective, objective_of
from mmdb.train.compute.candidate_check import CandidateCheck
from mmdb.train.features.feature_planning import check_request, with_transfer
from mmdb.train.ledger.run_options import parse_run_options
from mmdb.train.schedule.strategy import STRATEGIES as SCHEDULED
from mmdb.train.search import Start, compares, make_search, possible, to_row
from mmdb.train.values.seeds import candidate_seed
from mmdb.train.warm.warm_options import AUTO, OFF, parse_warm_options

_Q = load("runs")

STRATEGIES = ("auto", *SCHEDULED)


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

    Args:
        warm_start: "off", "auto", or a model to begin with: the version that it names now.
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
    _check_choices(epochs, strategy)
    asked = parse_run_options(options, strategy)
    warm_start = _parent_of(connection, warm_start, options)
    search = with_transfer(search, options)
    objective = _objective(connection, found, search, options)
    parsed = parse(architecture)
    check = _check_of(connection, parsed, found, options)
    frozen = 0
    for ordinal, config in enumerate(possible(search, epochs=epochs, seed=seed)):
        _check_candidate(check, config, ordinal)
        frozen += config.get("freeze_up_to") is not None
    if frozen:
        check_request(connection, strategy, asked.strategies, warm_start)
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
        _add_candidates(connection, row["run_id"], parsed, seed, starts)
    return row["run_id"], len(starts)


def _check_choices(epochs: int, strategy: str) -> None:
    if epochs < 1:
        raise InvalidOption(f"epochs is {epochs}.", hint="It is a whole number from 1.")
    if strategy not in STRATEGIES:
        raise InvalidOption(
            f"strategy is {show(strategy)}.", hint=f"Known: {', '.join(STRATEGIES)}."
        )


def _parent_of(connection: Connection, warm_start: str, options: Mapping[str, Any]) -> str:
    """Return "off", "auto", or the model that candidates are to begin with as `name@version`.

    Raises:
        ModelNotFound, InvalidOption
    """
    if not isinstance(warm_start, str):
        raise InvalidOption(
            f"warm_start is {show(warm_start)}.", hint="It is 'off', 'auto' or a model's name."
        )
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
    dataset = find_dataset(connection, candidate["dataset"])
    architecture = json.loads(candidate["architecture"])
    options = json.loads(candidate["options"])
    _check_of(connection, architecture, dataset, options)(config)
    if config.get("freeze_up_to") is not None:
        check_request(connection, candidate["strategy"], (), candidate["warm_start"])


def _add_candidates(
    connection: Connection,
    run_id: int,
    architecture: Mapping[str, Any],
    seed: int,
    starts: Sequence[Start],
) -> None:
    connection.run_many(
        _Q.add_first_candidate,
        [
            {
                "run_id": run_id,
                "ordinal": ordinal,
                "config": json.dumps(start.config),
                "seed": candidate_seed(seed, ordinal),
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
