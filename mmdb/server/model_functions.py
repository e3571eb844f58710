"""SQL's functions of models: to save and to predict here, to judge and to explain passed on."""

from __future__ import annotations

import functools
import gc
import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mmdb.data.arrays import Inputs
from mmdb.data.inputs import object_input, vector_input
from mmdb.data.query_rows import parsed_inputs, scan_inputs
from mmdb.data.row_plan import UNUSUAL
from mmdb.errors import InvalidInput
from mmdb.messages import show
from mmdb.server.arguments import json_object, json_row
from mmdb.server.backend import UNBOUNDED, Backend, deferred, exposed
from mmdb.server.plpy_connection import PlpyConnection
from mmdb.server.row_limit import row_count
from mmdb.train.values.runtime import uncollected

if TYPE_CHECKING:
    from mmdb.server.predictor import Predictor


#: Characters of the keys of a few rows: a thread of their own costs more than their predictions.
_FEW_KEYS = 64
#: Numbers, or characters, of a row that takes less memory than the model has taken already: a limit
#: of the process costs a tenth of its prediction.
_SHORT_ROW = 4096


@exposed
def save_candidate(
    backend: Backend, candidate_id: int, name: str, approach: str, options: str
) -> list[dict[str, Any]]:
    """Save a candidate's best checkpoint; see `mmdb.train.replay.saving.save_candidate`."""
    from mmdb.train.replay import saving  # a session that predicts need not load it

    row = saving.save_candidate(
        backend.connection,
        candidate_id,
        name,
        approach=approach,
        options=json_object(options, "options"),
    )
    return [{key: row[key] for key in ("model_id", "name", "version")}]


@functools.partial(exposed, is_quick=lambda backend, *_: bool(backend.models), is_bounded=True)
def predict(backend: Backend, model: str, x: Any) -> list[float]:
    """Return probabilities, or the value of a regression, of each target in turn, for one row."""
    predictor = find_predictor(backend, model)
    row_count(backend).add(1)
    with UNBOUNDED if x is None or len(x) <= _SHORT_ROW else backend.bounded():
        return predictor.one(given_row(backend, predictor, x))


def given_row(backend: Backend, predictor: Predictor, x: Any) -> Inputs:
    """Return one row, as `predict` takes it, as the model's inputs.

    Raises:
        InvalidInput: it is none.
    """
    if predictor.plan is not None:
        try:
            row = json.loads(x) if isinstance(x, str) else x
            if isinstance(row, list):
                row = dict(zip(predictor.decoding.inputs[0].columns, row, strict=True))
            return predictor.plan(row)
        except UNUSUAL:
            pass  # what follows says what is wrong, or takes it
    value = json_row(x) if isinstance(x, str) else x
    if isinstance(value, dict):
        engine = backend.connection.engine
        return object_input(predictor.decoding, value, predictor.encoders, engine)
    if isinstance(value, list):
        return vector_input(predictor.decoding, value)
    raise InvalidInput(f"The input is {show(value)}.")


@exposed
def predict_query(
    backend: Backend, model: str, query: str, key: str | None, probabilities: bool
) -> list[dict[str, Any]]:
    """Return key, prediction and probability of the first target for every row of a SELECT."""
    predictor = find_predictor(backend, model)
    found: list[dict[str, Any]] = []
    key, counted = predictor.key(key), row_count(backend)
    for keys, inputs in scan_inputs(backend.connection, predictor.decoding, query, key):
        counted.add(len(keys))
        predicted = predictor.predictions(inputs, of_all=bool(probabilities))
        names = ("key", "prediction", "probability", "probabilities")
        found += [dict(zip(names, row, strict=True)) for row in zip(keys, *predicted, strict=True)]
    return found


@exposed
def predict_rows(
    backend: Backend,
    model_id: int,
    key: str,
    types: Sequence[str],
    rows: Sequence[bytes],
    has_probabilities: bool,
) -> list[tuple[Sequence[Any], ...]]:
    """Return the columns that `predict_query` does, for a block of the rows that a node holds."""
    _loaded(isinstance(backend.connection, PlpyConnection))
    from mmdb.server.predictor import predictor_on_node

    predictor = predictor_on_node(backend, model_id)
    row_count(backend).add(len(rows or ()))
    keys, inputs = parsed_inputs(predictor.decoding, predictor.encoders, rows, types, key)
    return [(keys, *predictor.predictions(inputs, of_all=bool(has_probabilities)))]


def find_predictor(backend: Backend, model: str, *, of_texts: bool = False) -> Predictor:
    """Return a model that predicts; see `mmdb.server.predictor`, which the first call loads."""
    find = _loaded(isinstance(backend.connection, PlpyConnection))
    return find(backend, model, of_texts=of_texts)


@cache
def _loaded(in_server: bool) -> Callable[..., Predictor]:
    """Load torch, and what builds a model, without searching for garbage meanwhile.

    All of it stays: in a session of the server, no later search looks there again, which would hold
    up a request for a tenth of a second. A user's own process is left alone.
    """
    with uncollected():
        import mmdb.train.replay.recipe_replay  # noqa: F401
        from mmdb.server import predictor
    if in_server:
        gc.freeze()
    return predictor.find_predictor


generate = deferred("mmdb.server.generating.generate")


def _is_small(backend: Backend, scoring_id: int, target: str, keys: str, *_: object) -> bool:
    """Return whether new rows are so few that a thread of their own takes longer than they do."""
    return bool(backend.models) and len(keys) <= _FEW_KEYS


# Judged and explained: their modules load torch within the call.
evaluate = deferred("mmdb.server.judging.evaluate")
compare_models = deferred("mmdb.server.judging.compare_models")
confusion_matrix = deferred("mmdb.server.judging.confusion_matrix")
roc_curve = deferred("mmdb.server.judging.roc_curve")
precision_recall = deferred("mmdb.server.judging.precision_recall")
calibration = deferred("mmdb.server.judging.calibration")
thresholds = deferred("mmdb.server.judging.thresholds")
calibrate_model = deferred("mmdb.server.judging.calibrate_model")
residuals = deferred("mmdb.server.judging.residuals")
importance = deferred("mmdb.server.explaining.importance")
explain_predict = deferred("mmdb.server.explaining.explain_predict")
training_rows = deferred("mmdb.server.explaining.training_rows")
drift = deferred("mmdb.server.drifting.drift")
begin_retraining = deferred("mmdb.server.retraining.begin_retraining")
end_retraining = deferred("mmdb.server.retraining.end_retraining")
retrain = deferred("mmdb.server.retraining.retrain")
forget = deferred("mmdb.server.forgetting.forget")
next_remake = deferred("mmdb.server.forgetting.next_remake")
remake = deferred("mmdb.server.forgetting.remake")
import_model = deferred("mmdb.server.importing.import_model")
attach = deferred("mmdb.server.importing.attach")


embed = deferred("mmdb.server.embedding.embed")
embed_into = deferred("mmdb.server.embedding.embed_into")
# Of triggers.
score_on_insert = deferred("mmdb.server.scoring.score_on_insert")
embed_on_insert = deferred("mmdb.server.scoring.embed_on_insert")
stop_scoring = deferred("mmdb.server.scoring.stop_scoring")
score_rows = deferred("mmdb.server.scoring.score_rows", is_quick=_is_small)
note_unscored = deferred("mmdb.server.scoring.note_unscored")
