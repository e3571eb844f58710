"""`save_candidate`, `predict`, `predict_query` and `evaluate`."""

from __future__ import annotations

import functools
import gc
import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from mmdb.data.arrays import Inputs
from mmdb.data.inputs import object_input, scan_inputs, vector_input
from mmdb.data.matching import Reordering
from mmdb.data.row_plan import UNUSUAL
from mmdb.errors import DatasetDropped, InvalidInput, InvalidOption
from mmdb.messages import show
from mmdb.server.arguments import json_object, json_row
from mmdb.server.backend import UNBOUNDED, Backend, exposed
from mmdb.server.plpy_connection import PlpyConnection
from mmdb.train.values.runtime import uncollected

if TYPE_CHECKING:
    from mmdb.server.predictor import Predictor


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


@functools.partial(exposed, is_quick=lambda backend: bool(backend.models), is_bounded=True)
def predict(backend: Backend, model: str, x: Any) -> list[float]:
    """Return probabilities, or the value of a regression, of each target in turn, for one row."""
    predictor = find_predictor(backend, model)
    with UNBOUNDED if x is None or len(x) <= _SHORT_ROW else backend.bounded():
        return predictor.one(_given(backend, predictor, x))


def _given(backend: Backend, predictor: Predictor, x: Any) -> Inputs:
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
    key = predictor.key(key)
    for keys, inputs in scan_inputs(backend.connection, predictor.decoding, query, key):
        predicted = predictor.predictions(inputs, of_all=bool(probabilities))
        names = ("key", "prediction", "probability", "probabilities")
        found += [dict(zip(names, row, strict=True)) for row in zip(keys, *predicted, strict=True)]
    return found


@exposed
def evaluate(backend: Backend, model: str, dataset: str, slice: str | None) -> list[dict[str, Any]]:
    """Return metrics over a slice: by default validation, or all rows where there is none."""
    import torch  # as the predictor does

    from mmdb.data.dataset import find_dataset
    from mmdb.data.reader import read_partition
    from mmdb.server.predictor import measure

    connection = backend.connection
    predictor = find_predictor(backend, model)
    found = find_dataset(connection, dataset)
    if found.dropped:
        raise DatasetDropped(f"Dataset {dataset!r} has been dropped.")
    ordered = Reordering(predictor.decoding, found.decoding)
    held_out = [part for part in found.slices if part.role == (slice or "validation")]
    if slice is not None and not held_out:
        raise InvalidOption(
            f"Dataset {dataset!r} has no slice {show(slice)}.",
            hint=f"It has {', '.join(sorted({part.role for part in found.slices}))}.",
        )
    outputs, labels = [], []
    for part in held_out or found.partitions:
        decoded = read_partition(connection, part.part_id, part.content_hash, ordered.model)
        outputs.append(predictor.outputs(decoded.inputs))
        labels.append(tuple(map(torch.from_numpy, ordered.labels(decoded))))
    values = measure(
        connection,
        predictor,
        tuple(map(torch.cat, zip(*outputs, strict=True))),
        tuple(map(torch.cat, zip(*labels, strict=True))),
    )
    return [{"metric": name, "value": value} for name, value in values.items()]


def find_predictor(backend: Backend, model: str) -> Predictor:
    """Return a model that predicts; see `mmdb.server.predictor`, which the first call loads."""
    return _loaded(isinstance(backend.connection, PlpyConnection))(backend, model)


@cache
def _loaded(in_server: bool) -> Callable[[Backend, str], Predictor]:
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
