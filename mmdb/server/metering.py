"""The metrics of a model on a sample: those of its run, or those that are asked for."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.nn.functional import one_hot

from mmdb.arguments import unfit
from mmdb.data.functions import find_functions
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import InvalidInput
from mmdb.server.predictor import Predictor
from mmdb.server.sample import PredictedRows
from mmdb.store.models.model_rows import SavedModel
from mmdb.train.candidate.measures import LOSS, Meter, measures_of, objective_of, parse_measure
from mmdb.train.candidate.metrics import OF_CLASSES, OF_GUESSES
from mmdb.train.candidate.named_choices import Functions
from mmdb.train.candidate.setup import setup_of_candidate
from mmdb.train.values.row_batch import fitted
from mmdb.train.values.spec import CandidateSpec


class Metering:
    """Measures a model on a sample.

    By default as a validation of its run does: the loss is among the metrics where the run compares
    its candidates by it; of a model without a run they are those that every run records.
    """

    def __init__(self, connection: Connection, predictor: Predictor, asked: Any = None) -> None:
        """Take a model, and the metrics in place of these, as options.metrics has them.

        Raises:
            InvalidOption: a metric is unknown, or not of the label's task.
            FunctionNotFound, FunctionFailed: a registered metric or loss cannot be used.
        """
        targets, functions = predictor.decoding.targets, find_functions(connection)
        candidate = _candidate(connection, predictor.model, functions)
        options = candidate.options if candidate else {}
        measures = measures_of(targets, options, functions)
        if asked is not None:
            if not isinstance(asked, list) or not asked:
                raise unfit(
                    "metrics", asked, 'It is a list, such as ["auc", {"name": "top_k", "k": 3}].'
                )
            measures = tuple(parse_measure(one, targets, functions) for one in asked)
        #: By metric, whether more is better; None of a registered one that does not say.
        self.maximize = {measure.key: measure.maximize for measure in measures} | {LOSS: False}
        #: By which the run compares its candidates.
        self.main = objective_of(targets, options, functions).metric
        #: By metric that is a mean over the classes there are, the ordinal of its target.
        self.of_classes = {
            one.key: one.target
            for one in measures
            if one.name in OF_CLASSES and targets[one.target].task == "classification"
        }
        self._meter = Meter(measures, targets, functions)
        self._guesses = None if predictor.calibration.positive is None else predictor.guesses
        self._criterion = None
        is_of_rows = predictor.decoding.task != "next_token"
        if asked is None and candidate and options.get("metric") == LOSS and is_of_rows:
            self._criterion = setup_of_candidate(candidate, predictor.model.epoch or 0).criterion

    def __call__(self, sample: PredictedRows, places: Tensor | None = None) -> dict[str, float]:
        """Return the metrics of all rows, or of those at some places, int64 (n,)."""
        some = sample if places is None else sample.at(places)
        outputs, labels, weight = some.outputs, some.labels, some.weight
        fits = [fitted(output, true) for output, true in zip(outputs, labels, strict=True)]
        values = self._meter(fits, labels, weight)
        if self._guesses is not None and values:
            guessed = one_hot(self._guesses(outputs[0]), outputs[0].shape[-1]).float()
            values |= {
                n: v for n, v in self._meter([guessed], labels, weight).items() if n in OF_GUESSES
            }
        if self._criterion is None:
            return values
        given = labels if weight is None else (*labels, weight.float())
        loss = float(self._criterion(outputs, given if len(given) > 1 else given[0]))
        return {LOSS: loss, **values} if math.isfinite(loss) else values


def require_numbers(predictor: Predictor, sample: PredictedRows) -> None:
    """Raise where a model predicts no number, or all rows weigh 0: no metric is defined then.

    Raises:
        InvalidInput
    """
    if sample.weight is not None and sample.row_count and not sample.weight.any():
        raise InvalidInput("All of these rows weigh 0.", hint="Read rows with a weight above 0.")
    for label, output in zip(predictor.decoding.labels, sample.outputs, strict=True):
        wrong = ~output.isfinite() if label.task == "regression" else output.isnan()
        if wrong.any():
            what = "NaN" if output[wrong].isnan().all() else "infinity or NaN"
            raise InvalidInput(
                f"Model {predictor.model.reference} predicts {what} for "
                f"{'all' if wrong.all() else 'some'} of these rows.",
                hint="Its weights, or what it computes from them, are not finite: choose another.",
            )


def _candidate(
    connection: Connection, model: SavedModel, functions: Functions
) -> CandidateSpec | None:
    """Return the candidate that a model was saved from; None where the caller sees none."""
    if model.candidate_id is None:
        return None
    found = connection.rows(load("hops").find_candidate, candidate_id=model.candidate_id)
    return CandidateSpec.from_row(found[0], {}, functions) if found else None
