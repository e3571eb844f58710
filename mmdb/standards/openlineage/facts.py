"""What the tables say of runs, datasets, models and predictions, before it becomes events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mmdb.data.names import found_run
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load

_Q = load("standards")
Grouped = Mapping[int, Sequence[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Rows of `sql/queries/standards.sql`, by the ids that they hang on."""

    datasets: Mapping[int, Row] = field(default_factory=dict)
    dataset_columns: Grouped = field(default_factory=dict)
    dataset_sources: Grouped = field(default_factory=dict)
    runs: Sequence[Row] = ()
    run_events: Grouped = field(default_factory=dict)
    warm_parents: Grouped = field(default_factory=dict)
    models: Mapping[int, Row] = field(default_factory=dict)
    predictions: Sequence[Row] = ()
    prediction_sources: Grouped = field(default_factory=dict)
    of_one_run: bool = False  # then models outside of it are there to be named alone


def read_facts(connection: Connection, run: str | None = None) -> Facts:
    """Read what there is, or a run with its dataset and its models.

    Raises:
        RunNotFound: there is no run of that name.
        RightsMissing: the role may not read mmdb's tables.
    """
    runs = connection.rows(_Q.find_runs, run=run)
    if run is not None:
        found_run(runs, run)
    datasets = connection.rows(_Q.find_datasets, run=run)
    models = connection.rows(_Q.find_saved_models)
    return Facts(
        datasets={row["dataset_id"]: row for row in datasets},
        dataset_columns=_by(connection.rows(_Q.find_dataset_columns, run=run), "dataset_id"),
        dataset_sources=_by(connection.rows(_Q.find_dataset_sources, run=run), "owner_id"),
        runs=runs,
        run_events=_by(connection.rows(_Q.find_run_events, run=run), "run_id"),
        warm_parents=_by(connection.rows(_Q.find_warm_parents, run=run), "run_id"),
        models={row["model_id"]: row for row in models},
        predictions=() if run else connection.rows(_Q.find_predictions),
        prediction_sources={}
        if run
        else _by(connection.rows(_Q.find_prediction_sources), "owner_id"),
        of_one_run=run is not None,
    )


def read_hops(connection: Connection, run_id: int) -> Iterator[Row]:
    """Yield the hops of a run as they are read."""
    names = (
        "part_id",
        "candidate_id",
        "candidate",
        "epoch",
        "partition",
        "role",
        "row_count",
        "steps",
        "loss",
        "objective",
        "worker",
        "started_at",
        "finished_at",
    )
    for row in connection.stream(_Q.find_run_hops, run_id=run_id):
        yield dict(zip(names, row, strict=True))


def _by(rows: Iterable[Row], column: str) -> Grouped:
    grouped: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row[column]].append(row)
    return dict(grouped)
