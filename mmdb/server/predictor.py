"""A saved model that predicts rows, kept in the session that uses it, and how it is measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mmdb.data.arrays import Decoded, Inputs
from mmdb.data.calibration import Calibration
from mmdb.data.dataset import find_decoding
from mmdb.data.decoding import Decoding, Label, class_text, numbers_in
from mmdb.data.inputs import encoders_of
from mmdb.data.row_plan import row_plan
from mmdb.data.tokenize import Encoder
from mmdb.errors import InvalidInput
from mmdb.graph.row_network import row_network
from mmdb.judge.calibration import Calibrated, guesses
from mmdb.server.apart import this_call
from mmdb.server.backend import Backend
from mmdb.server.node_reading import reading
from mmdb.server.session_control import statement
from mmdb.store.models.model_rows import SavedModel, find_model_id, model_of
from mmdb.train.compute.hop import EVALUATION_BATCH, EVALUATION_TOKENS, label_logs
from mmdb.train.values.row_batch import call, outputs_of

#: Models that a session keeps for prediction; the least recently used one goes first.
KEPT_MODELS = 8
#: Rows on which numpy has to agree with a module.
_EXAMPLES = 32


class Predictions(NamedTuple):
    """Predictions of some rows, and how probable they are; None where those would be NaN."""

    values: list[str | None]  # a class, a number, or a JSON list of probabilities
    probability: Sequence[float | None]  # of the class
    probabilities: Sequence[str | None]  # JSON: by class, or a list by label


@dataclass(frozen=True, slots=True)
class Predictor:
    """A model with what turns rows into its inputs."""

    model: SavedModel
    module: nn.Module  # calibrated, where the model is
    calibration: Calibration
    decoding: Decoding
    encoders: Mapping[str, Encoder]
    plan: Callable[[Mapping[str, Any]], np.ndarray] | None  # see `row_plan`
    network: Callable[[np.ndarray], np.ndarray] | None  # see `row_network`
    kept: dict[object, Any] = field(default_factory=dict)  # what others make of it once

    def one(self, inputs: Inputs) -> list[float]:
        """Return the `values` of one row in turn, which may differ by rounding."""
        if self.network is None or isinstance(inputs, dict):
            return [p for values in self.values(inputs) for p in values[0].tolist()]
        output: list[float] = self.network(inputs).tolist()
        if self.decoding.classes is None:
            return output
        most = max(output)
        shares = [math.exp(number - most) for number in output]
        whole = sum(shares)
        return [share / whole for share in shares]

    def outputs(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """Return the module's output for each target, float32 (n, size); NaN where no class is."""
        targets = self.decoding.targets
        found = [outputs_of(output, targets) for output in passes(self.module, inputs)]
        joined = found[0] if len(found) == 1 else map(torch.cat, zip(*found, strict=True))
        return tuple(map(_with_lost, self.decoding.labels, joined))

    def outputs_at(self, inputs: Inputs, labels: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return what metrics take beside labels: outputs, or of next tokens `label_logs`."""
        if self.decoding.task != "next_token":
            return self.outputs(inputs)
        assert isinstance(inputs, np.ndarray)
        found = []
        for at in torch.arange(len(inputs)).split(max(1, EVALUATION_TOKENS // inputs.shape[1])):
            (output,) = self.outputs(inputs[at.numpy()])  # of all rows together it is too large
            found.append(label_logs(output, labels[0][at]))
        return (torch.cat(found),)

    def values(self, inputs: Inputs) -> list[np.ndarray]:
        """Return for each target the probabilities, or a regression's values, (n, size)."""
        outputs = zip(self.decoding.labels, self.outputs(inputs), strict=True)
        return [
            _probable(label, output).reshape(len(output), -1).numpy() for label, output in outputs
        ]

    def predictions(self, inputs: Inputs, *, of_all: bool = False) -> Predictions:
        """Return what is predicted of the first target for each row, and how probable it is.

        Args:
            of_all: the probabilities of all classes, or labels, too.
        """
        label, values = self.decoding.labels[0], self.values(inputs)[0]
        nothing = [None] * len(values)
        if label.task == "multilabel":
            rows = [_json(row, row) for row in values.tolist()]
            return Predictions(rows, nothing, rows if of_all else nothing)
        if label.classes is None:
            return Predictions([str(n) for n in values[:, 0].tolist()], nothing, nothing)
        best = guesses(self.calibration, torch.from_numpy(values)).numpy()
        names = [class_text(value) for value in label.classes]
        chances = values[np.arange(len(best)), best]
        given, probability = np.array(names, object)[best], chances.astype(object)
        given[np.isnan(chances)] = probability[np.isnan(chances)] = None
        if not of_all:
            return Predictions(given.tolist(), probability.tolist(), nothing)
        shown = [_json(dict(zip(names, row, strict=True)), row) for row in values.tolist()]
        return Predictions(given.tolist(), probability.tolist(), shown)

    def guesses(self, outputs: Tensor) -> Tensor:
        """Return the class that is predicted of each row by the first target's outputs."""
        return guesses(self.calibration, torch.softmax(outputs, dim=-1))

    @property
    def uncalibrated(self) -> Predictor:
        """The model as it was trained."""
        inner = self.module.module if isinstance(self.module, Calibrated) else self.module
        return replace(self, module=inner, calibration=Calibration(), network=None)

    def key(self, key: str | None) -> str:
        """Return the column that names a row: the key of the model's dataset, or id, by default."""
        return self.decoding.key_of_rows if key is None else key


def find_predictor(backend: Backend, reference: str, *, of_texts: bool = False) -> Predictor:
    """Return a model, kept in the session; models are immutable, so their id is the key.

    A statement asks once which model a reference names.

    Args:
        of_texts: it may be one of next tokens, too.
    Raises:
        ModelNotFound, InvalidInput: it was saved without a dataset, or generates texts.
    """
    load = partial(_load, of_texts=of_texts)
    found: Predictor = kept_model(backend, reference, load)
    if found.decoding.task == "next_token" and not of_texts:
        raise _generates(found.model)
    return found


def predictor_on_node(backend: Backend, model_id: int) -> Predictor:
    """Return a model by its number: nodes are told it by the coordinator, which has asked for it.

    Raises:
        ModelNotFound, InvalidInput: as `find_predictor`.
    """
    if getattr(backend.connection, "is_spread", False):
        found: Predictor = _kept(backend, "", model_id, partial(_load, of_texts=False))
        return found
    return find_predictor(backend, model_of(backend.connection, model_id).reference)


def _generates(model: SavedModel) -> InvalidInput:
    return InvalidInput(
        f"Model {model.reference} predicts next tokens, not a label of rows.",
        hint="Call mmdb.generate(model, prompt), evaluate or compare_models.",
    )


def kept_model(
    backend: Backend, reference: str, load: Callable[[Backend, int], Any], what: str = ""
) -> Any:
    """Return what a session keeps of a model: it predicts rows, or goes on with texts.

    Args:
        load: makes it of the model's number.
        what: tells what is made from what others make of the same model.
    Raises:
        ModelNotFound, and what `load` raises.
    """
    asked = None if this_call() else statement()
    if asked is None or asked != backend.known[0]:
        backend.known = (asked, {})
    known = backend.known[1]
    if reference not in known:
        with reading(backend) as reader:
            known[reference] = find_model_id(reader.connection, reference)
    return _kept(backend, what, known[reference], load)


def _kept(backend: Backend, what: str, model_id: int, load: Callable[[Backend, int], Any]) -> Any:
    kept, key = backend.models, (what, model_id)
    if key not in kept:
        with backend.bounded(), reading(backend) as reader:
            kept[key] = load(reader, model_id)
        while len(kept) > KEPT_MODELS:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]


def _load(backend: Backend, model_id: int, *, of_texts: bool) -> Predictor:
    connection = backend.connection
    saved = model_of(connection, model_id)
    if saved.dataset_id is None:
        raise InvalidInput(
            f"Model {saved.reference} was saved without a dataset.",
            hint="Pass dataset=... to db.save: it says how a row becomes the model's input.",
        )
    decoding = find_decoding(connection, saved.dataset_id)
    if decoding.task == "next_token" and not of_texts:
        raise _generates(saved)
    encoders = encoders_of(connection, decoding)
    module = backend.recover(saved).eval()
    network = row_network(module, _examples(decoding)) if decoding.is_plain else None
    calibration = Calibration()
    if saved.calibration is not None and decoding.classes is not None:
        names = [class_text(value) for value in decoding.classes]
        calibration = Calibration.from_json(json.loads(saved.calibration), names)
    if calibration.temperature is not None or calibration.isotonic:
        module, network = Calibrated(module, calibration).eval(), None
    return Predictor(saved, module, calibration, decoding, encoders, row_plan(decoding), network)


def _examples(decoding: Decoding) -> np.ndarray:
    """Return rows such as the only input may have."""
    random, given = np.random.default_rng(0), decoding.inputs[0]
    rows = random.normal(size=(_EXAMPLES, numbers_in(given.shape))).astype(np.float32)
    for column, span in decoding.spans(given):
        if column.transform is not None and column.transform.codes:
            size = (_EXAMPLES, column.decoded_width)
            rows[:, span] = random.integers(column.transform.codes, size=size)
    return rows.reshape(-1, *given.shape)


def _with_lost(label: Label, output: Tensor) -> Tensor:
    """Return outputs, all NaN of a row whose classes have no probabilities: one is infinite."""
    if label.task != "classification" or output.isfinite().all():
        return output
    return output.masked_fill(output.amax(-1, keepdim=True).isinf(), math.nan)


def _probable(label: Label, output: Tensor) -> Tensor:
    if label.task == "classification":
        return torch.softmax(output, dim=-1)
    return torch.sigmoid(output) if label.task == "multilabel" else output


def _json(shown: object, numbers: Sequence[float]) -> str | None:
    """Return the JSON of what is shown; None where a number of it is NaN."""
    return None if any(map(math.isnan, numbers)) else json.dumps(shown, ensure_ascii=False)


def passes(module: nn.Module, inputs: Inputs) -> list[object]:
    """Return what a module gives for rows, batch by batch, in one thread and without gradients."""
    before = torch.get_num_threads()
    if before != 1:
        torch.set_num_threads(1)
    try:
        with torch.no_grad():
            return [call(module, x) for x in _parts(inputs)]
    finally:
        if before != 1:
            torch.set_num_threads(before)


def _parts(inputs: Inputs) -> Iterator[Tensor | dict[str, Tensor]]:
    """Yield the rows that one forward pass takes."""
    arrays: Sequence[np.ndarray] = Decoded(inputs, ()).input_arrays
    for start in range(0, len(arrays[0]), EVALUATION_BATCH):
        rows = slice(start, start + EVALUATION_BATCH)
        if isinstance(inputs, dict):
            yield {name: torch.from_numpy(array[rows]) for name, array in inputs.items()}
        else:
            yield torch.from_numpy(inputs[rows])
