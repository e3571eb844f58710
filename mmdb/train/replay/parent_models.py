"""Parents out of the database: how their forwards can be had, and their tensors as bytes."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from mmdb.data.dataset import find_decoding
from mmdb.data.decoding import Decoding
from mmdb.db.connection import Connection
from mmdb.errors import DatasetNotFound, UnsupportedTensor
from mmdb.store.models.model_rows import SavedModel, model_of
from mmdb.train.compute.live import packed
from mmdb.train.replay.hop_replay import at_once
from mmdb.train.replay.recipe_replay import Compute, Weights, load_weights
from mmdb.train.values.warm_spec import Example, ParentForm, row_map


def read_model(
    connection: Connection,
    factories: Mapping[str, str],
    model_id: int,
    *,
    decoding: Decoding | None,
    follow: Compute = at_once,
    is_held: bool = False,
) -> tuple[ParentForm, bytes]:
    """Return a model as a parent, and its tensors as `packed` writes them.

    Args:
        decoding: of the rows that the child reads; None where they are not known.
        follow: runs the replay of a model that is kept as a recipe.
        is_held: whether the tensors are not wanted.
    Raises:
        CorruptTensor, RecipeError, ReplayMismatch: its tensors cannot be had.
        UnsupportedTensor: one is of a dtype that no file of tensors has.
    """
    model = model_of(connection, model_id)
    form = _form_of(connection, factories, model, decoding)
    if is_held:
        return form, b""
    return form, packed_weights(form, load_weights(connection, model, compute=follow))


def packed_weights(form: ParentForm, weights: Mapping[str, Tensor]) -> bytes:
    """Return a model's tensors as `packed` writes them.

    Raises:
        UnsupportedTensor: one is of a dtype that no file of tensors has.
    """
    try:
        return packed(weights)
    except KeyError as error:
        raise UnsupportedTensor(
            f"Model {form.reference} has a tensor of {error.args[0]}."
        ) from error


def model_and_weights(
    connection: Connection,
    factories: Mapping[str, str],
    model_id: int,
    *,
    decoding: Decoding | None,
    follow: Compute = at_once,
) -> tuple[ParentForm, Weights]:
    """Return a model as a parent, and its tensors by path; see `read_model`."""
    model = model_of(connection, model_id)
    form = _form_of(connection, factories, model, decoding)
    return form, load_weights(connection, model, compute=follow)


def _form_of(
    connection: Connection,
    factories: Mapping[str, str],
    model: SavedModel,
    decoding: Decoding | None,
) -> ParentForm:
    own = _decoding(connection, model)
    return ParentForm(
        reference=model.reference,
        definition=model.definition,
        factories=factories,
        examples=_examples(model, own, decoding),
        rows=row_map(decoding, own),
    )


def _decoding(connection: Connection, model: SavedModel) -> Decoding | None:
    """Return how the rows are decoded that a model was trained on, None where that is not known."""
    if model.dataset_id is None:
        return None
    try:
        return find_decoding(connection, model.dataset_id)
    except DatasetNotFound:  # only its number came with the model
        return None


def _examples(
    model: SavedModel, own: Decoding | None, child: Decoding | None
) -> tuple[Example, ...]:
    """Return what a model's forward may take, the most likely first."""
    found = [] if own is None else [example_of(own)]
    definition = model.definition
    if definition is not None and definition.input_shape:
        shape = definition.input_shape
        found += [Example(shape=shape, dtypes=dtype) for dtype in ("float32", "int64")]
    if child is not None:
        found.append(example_of(child))
    return tuple(one for k, one in enumerate(found) if one not in found[:k])


def example_of(decoding: Decoding) -> Example:
    """Return what a model of a dataset's rows takes."""
    dtypes = decoding.input_dtype
    return Example(
        shape=decoding.input_shape, dtypes=dtypes if isinstance(dtypes, str) else dict(dtypes)
    )
