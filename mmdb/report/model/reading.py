"""What a report reads of a model: through the views alone, all of it as of one moment."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mmdb.data.names import reference_of
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import Query, load
from mmdb.errors import ModelNotFound
from mmdb.messages import show
from mmdb.report.graph.folding import Graph
from mmdb.report.lineage import lineage_of
from mmdb.report.parts import Rows

_Q = load("report_models")
_RUNS = load("report")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Rows of the views, those of the model alone."""

    model: Row
    versions: Rows  # all of the name, the first first
    metrics: Rows  # of all versions
    aliases: Rows  # their history
    tags: Rows
    notes: Rows
    tensors: Rows
    storage: Row | None
    origin: Row | None  # of one that was not made here
    predictions: Rows  # that it wrote to tables, the last first
    epochs: Rows  # of the candidate it was
    hops: Rows
    transfers: Rows
    outcome: Row | None  # of its run
    lineage: Graph | None


def read_model(connection: Connection, reference: str) -> ModelFacts:
    """Return what the views say of a model's version; a dropped one by its number alone.

    Raises:
        ModelNotFound
    """
    asked = reference_of(reference)
    with connection.snapshot():
        rows = asked and connection.rows(
            _Q.find_version, model=asked.name, version=asked.version, alias=asked.alias
        )
        if not asked or not rows:
            raise ModelNotFound(f"There is no model named {show(reference)}.")
        model = {**rows[0], "reason": json.loads(rows[0]["reason"] or "null")}
        name, version = asked.name, model["version"]
        of = {"run": model["run"], "candidate_id": model["candidate_id"]}
        trained = model["run"] is not None
        this = {"model": name, "version": version}

        def first(query: Query, **parameters: object) -> Row | None:
            return next(iter(connection.rows(query, **parameters)), None)

        return ModelFacts(
            model=model,
            versions=connection.rows(_Q.find_versions, model=name),
            metrics=connection.rows(_Q.find_model_metrics, model=name),
            aliases=connection.rows(_Q.find_alias_history, model=name),
            tags=connection.rows(_Q.find_tags, **this),
            notes=connection.rows(_Q.find_notes, **this),
            tensors=connection.rows(_Q.find_tensors, **this),
            storage=first(_Q.find_storage, **this),
            origin=first(_Q.find_origin, **this),
            predictions=connection.rows(_Q.find_predictions, **this),
            epochs=connection.rows(_Q.find_candidate_epochs, **of) if trained else [],
            hops=connection.rows(_Q.find_candidate_hops, **of) if trained else [],
            transfers=connection.rows(_Q.find_transfer, **of) if trained else [],
            outcome=first(_RUNS.find_outcome, run=model["run"]) if trained else None,
            lineage=lineage_of(connection, f"model:{name}@{version}"),
        )
