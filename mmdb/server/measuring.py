"""What a model is measured by: the metrics of the run that it came from."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from mmdb.data.functions import find_functions
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.server.predictor import Predictor
from mmdb.store.models.model_rows import SavedModel
from mmdb.train.candidate.measures import LOSS, Meter, measures_of
from mmdb.train.candidate.named_choices import Functions
from mmdb.train.candidate.setup import setup_of_candidate
from mmdb.train.values.row_batch import fitted
from mmdb.train.values.spec import CandidateSpec


def measure(
    connection: Connection,
    predictor: Predictor,
    outputs: Sequence[Tensor],
    labels: tuple[Tensor, ...],
) -> dict[str, float]:
    """Return the metrics of some rows by name, as a validation of the model's run records them.

    The loss is among them where the run compares its candidates by it. A model without a run has
    the metrics of its targets' tasks that every run records.

    Raises:
        FunctionNotFound, FunctionFailed: a registered metric or loss cannot be used.
    """
    targets, functions = predictor.decoding.targets, find_functions(connection)
    candidate = _candidate(connection, predictor.model, functions)
    options = candidate.options if candidate else {}
    meter = Meter(measures_of(targets, options, functions), targets, functions)
    pairs = zip(outputs, labels, strict=True)
    values = meter([fitted(output, true) for output, true in pairs], labels)
    if candidate is None or options.get("metric") != LOSS:
        return values
    criterion = setup_of_candidate(candidate, predictor.model.epoch or 0).criterion
    return {LOSS: float(criterion(outputs, labels if len(labels) > 1 else labels[0])), **values}


def _candidate(
    connection: Connection, model: SavedModel, functions: Functions
) -> CandidateSpec | None:
    """Return the candidate that a model was saved from; None where the caller sees none."""
    if model.candidate_id is None:
        return None
    found = connection.rows(load("hops").find_candidate, candidate_id=model.candidate_id)
    return CandidateSpec.from_row(found[0], {}, functions) if found else None
