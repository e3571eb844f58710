"""OpenLineage events of datasets, runs with their hops, models and predictions, in this order.

A dataset is a job with its SQL, whose output has the columns' lineage; a run is a job that reads
the dataset and leaves models. So a catalog shows table -> dataset -> model -> table. Ids are made
of what is stored, so that whoever exports twice sends the same ids.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from mmdb.data.names import found_run
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.standards import openlineage_facets as ol
from mmdb.standards.identity import DatabaseIdentity, identity_of, moment
from mmdb.standards.openlineage_facets import Attempt, Part, attempt_at, attempts

_Q = load("standards")
_HOP_COLUMNS = (
    "part_id candidate_id candidate epoch partition role row_count steps loss objective worker "
    "started_at finished_at"
).split()
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
    for row in connection.stream(_Q.find_run_hops, run_id=run_id):
        yield dict(zip(_HOP_COLUMNS, row, strict=True))


def _by(rows: Iterable[Row], column: str) -> Grouped:
    grouped: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row[column]].append(row)
    return dict(grouped)


#: Columns of a table that predictions are written to.
_PREDICTED = (
    ("prediction", "text"),
    ("probability", "double precision"),
    ("model", "text"),
    ("predicted_at", "timestamptz"),
)
Hops = Callable[[int], Iterable[Row]]


def events(facts: Facts, database: DatabaseIdentity, hops: Hops | None = None) -> Iterator[Part]:
    """Yield the events of all that the facts hold.

    Args:
        hops: returns the hops of a run by its id, in order of time; each becomes a run of its own,
            below its run. None leaves them out.
    """
    writer = _EventWriter(facts, database)
    for dataset in facts.datasets.values():
        yield from writer.dataset(dataset)
    trained = set()
    for run in facts.runs:
        yield from writer.run(run, hops)
        if facts.run_events.get(run["run_id"]):
            trained.add(run["run_id"])
    if facts.of_one_run:
        return
    for model in facts.models.values():
        if model["run_id"] not in trained:
            yield from writer.model(model)
    for prediction in facts.predictions:
        yield from writer.prediction(prediction)


class _EventWriter:
    def __init__(self, facts: Facts, database: DatabaseIdentity) -> None:
        self.facts = facts
        self.database = database
        self.models_of: defaultdict[int, list[Row]] = defaultdict(list)
        for model in facts.models.values():
            if model["run_id"] is not None:
                self.models_of[model["run_id"]].append(model)

    # -- datasets ---------------------------------------------------------------------------

    def dataset(self, row: Row) -> Iterator[Part]:
        database, name = self.database, row["name"]
        run = ol.run_part(database.id("dataset", name, moment(row["created_at"])))
        job = ol.job_part(
            database, f"dataset.{name}", "DATASET", sql=ol.sql(database, row["query"])
        )
        sources = self.facts.dataset_sources.get(row["dataset_id"], ())
        read = ol.tables(database, sources)
        columns = self.facts.dataset_columns.get(row["dataset_id"], ())
        becomes = {
            c["name"]: f"{c['transform']}: {c['meaning']}"
            for c in columns
            if c["meaning"] is not None
        }
        feeds = [(s["output_name"], s) for s in sources]
        written = self._dataset_part(row)
        written["facets"] |= {
            "schema": ol.schema((c["name"], c["kind"]) for c in columns),
            "columnLineage": ol.column_lineage(database, feeds, becomes),
            **ol.unresolved(sources),
        }
        written["outputFacets"] = _statistics(row["row_count"], row["byte_count"])
        yield ol.event("START", row["created_at"], run, job, read)
        yield ol.event("COMPLETE", row["created_at"], run, job, read, [written])

    def _dataset_part(self, row: Row) -> Part:
        version = ol.facet(
            "DatasetVersionDatasetFacet", datasetVersion=bytes(row["content_hash"]).hex()
        )
        name = self.database.table("mmdb.dataset", row["name"])
        return ol.dataset_part(self.database, name, version=version)

    # -- runs -------------------------------------------------------------------------------

    def run(self, row: Row, hops: Hops | None) -> Iterator[Part]:
        name, run_id = row["name"], row["run_id"]
        all_failed = bool(row["candidates"]) and row["failed"] >= row["candidates"]
        found = attempts(self.facts.run_events.get(run_id, ()), all_failed=all_failed)
        job = ol.job_part(self.database, f"run.{name}", "TRAINING")
        read = [self._dataset_part(self.facts.datasets[row["dataset_id"]])]
        parents = (p["parent_id"] for p in self.facts.warm_parents.get(run_id, ()))
        read += [self._model_part(self.facts.models[parent]) for parent in parents]
        left = [self._model_part(model) for model in self.models_of.get(run_id, ())]
        below = self._hops(row, found, hops(run_id)) if hops and found else iter(())
        hop = next(below, None)
        for number, attempt in enumerate(found):
            run = self._attempt(row, number, attempt)
            yield ol.event("START", attempt.started_at, run, job, read)
            while hop is not None and hop[0] == number:
                yield from hop[1]
                hop = next(below, None)
            if attempt.end is not None and attempt.ended_at is not None:
                is_last = number == len(found) - 1
                written = left if is_last else []
                yield ol.event(attempt.end, attempt.ended_at, run, job, read, written)

    def _attempt(self, row: Row, number: int, attempt: Attempt) -> Part:
        names = "architecture search epochs strategy warm_start metric seed candidates"
        asked = {name: row[name] for name in names.split()} | {"workers": attempt.workers}
        given = {"executionParameters": ol.parameters(asked)}
        if attempt.end == "FAIL":
            given["errorMessage"] = ol.facet(
                "ErrorMessageRunFacet",
                message=row["error"] or "every candidate failed",
                programmingLanguage="Python",
            )
        return ol.run_part(self._attempt_id(row, number), **given)

    def _attempt_id(self, row: Row, number: int) -> str:
        return self.database.id("run", row["name"], moment(row["created_at"]), number)

    def _hops(
        self, row: Row, found: Sequence[Attempt], hops: Iterable[Row]
    ) -> Iterator[tuple[int, list[Part]]]:
        """Yield the events of each hop with the attempt that it belongs to."""
        job = ol.job_part(self.database, f"run.{row['name']}.hop", "HOP")
        read = [self._dataset_part(self.facts.datasets[row["dataset_id"]])]
        for hop in hops:
            number = attempt_at(found, hop["started_at"])
            parent = ol.facet(
                "ParentRunFacet",
                run={"runId": self._attempt_id(row, number)},
                job={"namespace": self.database.jobs, "name": f"run.{row['name']}"},
            )
            key = (hop["candidate"], hop["epoch"], hop["role"], hop["partition"])
            hop_id = self.database.id("hop", row["name"], moment(row["created_at"]), *key)
            run = ol.run_part(hop_id, parent=parent, mmdb_hop=_hop_facet(hop))
            start = ol.event("START", hop["started_at"], run, job, read)
            yield number, [start, ol.event("COMPLETE", hop["finished_at"], run, job, read)]

    # -- models -----------------------------------------------------------------------------

    def model(self, row: Row) -> Iterator[Part]:
        """Yield the events of a model that came out of no run here."""
        parents = dict.fromkeys(
            p for p in (row["parent_id"], row["warm_parent_id"]) if p in self.facts.models
        )
        read = [self._model_part(self.facts.models[parent]) for parent in parents]
        if row["dataset_id"] in self.facts.datasets:
            read.append(self._dataset_part(self.facts.datasets[row["dataset_id"]]))
        if row["origin"] == "import":
            read.append({"namespace": "file", "name": row["source"], "facets": {}})
        elif row["origin"] is not None:
            name = f"mmdb.model.{row['name']}.{row['version']}"
            read.append({"namespace": row["source"], "name": name, "facets": {}})
        reference = f"{row['name']}@{row['version']}"
        run = ol.run_part(self.database.id("model", reference, moment(row["created_at"])))
        job = ol.job_part(self.database, f"model.{row['name']}", "MODEL")
        start = row["created_at"] - timedelta(seconds=row["save_s"])
        yield ol.event("START", start, run, job, read)
        yield ol.event("COMPLETE", row["created_at"], run, job, read, [self._model_part(row)])

    def _model_part(self, row: Row) -> Part:
        parent = self.facts.models.get(row["parent_id"])
        version = ol.facet(
            "DatasetVersionDatasetFacet", datasetVersion=bytes(row["weights_hash"]).hex()
        )
        about = ol.own_facet(
            "ModelDatasetFacet",
            name=row["name"],
            version=row["version"],
            approach=row["approach"],
            tensors=row["tensor_count"],
            bytes=row["byte_count"],
            parameters=row["parameter_count"],
            candidate=row["candidate"],
            epoch=row["epoch"],
            parent=None if parent is None else f"{parent['name']}@{parent['version']}",
            metrics=_numbers(json.loads(row["metrics"])),
        )
        name = self.database.table("mmdb.model", f"{row['name']}.{row['version']}")
        return ol.dataset_part(self.database, name, version=version, mmdb_model=about)

    # -- predictions ------------------------------------------------------------------------

    def prediction(self, row: Row) -> Iterator[Part]:
        database, model = self.database, self.facts.models[row["model_id"]]
        sources = self.facts.prediction_sources.get(row["prediction_id"], ())
        read = [*ol.tables(database, sources), self._model_part(model)]
        feeds = [(_predicted_column(s["output_name"], row["key_name"]), s) for s in sources]
        columns = [(row["key_name"], "key"), *_PREDICTED]
        written = ol.dataset_part(
            database,
            database.table(row["schema_name"], row["table_name"]),
            schema=ol.schema(columns),
            columnLineage=ol.column_lineage(database, feeds),
            **ol.unresolved(sources),
        )
        written["outputFacets"] = _statistics(row["row_count"], None)
        run_id = database.id("prediction", row["prediction_id"], moment(row["predicted_at"]))
        run = ol.run_part(run_id)
        reference = f"{model['name']}@{model['version']}"
        job = ol.job_part(
            database, f"predict.{reference}", "PREDICTION", sql=ol.sql(database, row["query"])
        )
        start = row["predicted_at"] - timedelta(seconds=row["seconds"])
        yield ol.event("START", start, run, job, read)
        yield ol.event("COMPLETE", row["predicted_at"], run, job, read, [written])


def _predicted_column(output: str | None, key: str) -> str | None:
    """Return what an output of the query becomes: the key stays, all others make the prediction."""
    return output if output is None or output == key else "prediction"


def _statistics(rows: int, size: int | None) -> Part:
    facet = ol.facet("OutputStatisticsOutputDatasetFacet", rowCount=rows, size=size)
    return {"outputStatistics": facet}


def _hop_facet(hop: Row) -> Part:
    about = {"rows" if name == "row_count" else name: hop[name] for name in _HOP_COLUMNS[2:11]}
    return ol.own_facet("HopRunFacet", **about)


def _numbers(metrics: Any) -> dict[str, float | None]:
    kept = metrics.items() if isinstance(metrics, dict) else ()
    return {
        name: value
        for name, value in kept
        if value is None or (isinstance(value, int | float) and math.isfinite(value))
    }


def lineage_events(
    connection: AnyConnection, run: str | None = None, *, jobs: str = "mmdb", hops: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the events of `Database.export_openlineage`.

    Until the last one is taken, the session can do nothing else.
    """
    database = identity_of(connection, jobs)
    facts = read_facts(connection, run)
    below = (lambda run_id: read_hops(connection, run_id)) if hops else None
    return events(facts, database, below)
