"""Parents out of the database: how their forwards can be had, and their tensors as bytes."""

from __future__ import annotations

from collections.abc import Mapping

from mmdb.data.dataset import dataset_of
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import DatasetNotFound, StateCorrupt, StateNotFound, UnsupportedTensor
from mmdb.graph.sizes import Dtypes
from mmdb.store import states
from mmdb.store.models import SavedModel, model_of
from mmdb.train.compute.live import state_hash
from mmdb.train.recipe.hop_replay import at_once
from mmdb.train.recipe.replay import Compute, Weights, load_weights
from mmdb.train.recipe.save import candidate_definition
from mmdb.train.warm.making import packed
from mmdb.train.warm.offers import CandidateOffer
from mmdb.train.warm.spec import Example, ParentForm


def read_model(
    connection: Connection,
    factories: Mapping[str, str],
    example: Example | None,
    model_id: int,
    *,
    follow: Compute = at_once,
) -> tuple[ParentForm, bytes]:
    """Return a model as a parent, and its tensors as `making.packed` writes them.

    Args:
        example: of the child's input, which may be the parent's too.
        follow: runs the replay of a model that is kept as a recipe.
    Raises:
        CorruptTensor, RecipeError, ReplayMismatch: its tensors cannot be had.
        UnsupportedTensor: one is of a dtype that no file of tensors has.
    """
    form, weights = model_and_weights(connection, factories, example, model_id, follow=follow)
    try:
        return form, packed(weights)
    except KeyError as error:
        raise UnsupportedTensor(
            f"Model {form.reference} has a tensor of {error.args[0]}."
        ) from error


def model_and_weights(
    connection: Connection,
    factories: Mapping[str, str],
    example: Example | None,
    model_id: int,
    *,
    follow: Compute = at_once,
) -> tuple[ParentForm, Weights]:
    """Return a model as a parent, and its tensors by path; see `read_model`."""
    model = model_of(connection, model_id)
    form = ParentForm(
        reference=model.reference,
        definition=model.definition,
        factories=factories,
        examples=_examples(connection, model, example),
    )
    return form, load_weights(connection, model, compute=follow)


def _examples(
    connection: Connection, model: SavedModel, example: Example | None
) -> tuple[Example, ...]:
    """Return what a model's forward may take, the most likely first."""
    found: list[Example] = []
    if model.dataset_id is not None:
        try:
            dataset = dataset_of(connection, model.dataset_id)
            found.append(Example(shape=dataset.input_shape, dtypes=_dtypes(dataset.input_dtype)))
        except DatasetNotFound:  # only its number came with the model
            pass
    definition = model.definition
    if definition is not None and definition.input_shape:
        shape = definition.input_shape
        found += [Example(shape=shape, dtypes=dtype) for dtype in ("float32", "int64")]
    if example is not None:
        found.append(example)
    return tuple(one for k, one in enumerate(found) if one not in found[:k])


def _dtypes(given: Mapping[str, str] | str) -> Dtypes:
    return given if isinstance(given, str) else dict(given)


def read_candidate(
    connection: Connection,
    factories: Mapping[str, str],
    example: Example,
    offer: CandidateOffer,
) -> tuple[ParentForm, bytes]:
    """Return a candidate as a parent, and its state.

    Raises:
        StateNotFound: the checkpoint has been pruned meanwhile.
        StateCorrupt
    """
    (row,) = connection.rows(load("hops").find_candidate, candidate_id=offer.candidate_id)
    name = offer.state.hex()
    state = states.read_checkpoint(connection, offer.part_id, offer.candidate_id, name)
    if state is None:
        raise StateNotFound(f"The state {name[:12]} of {offer.name} has just been replaced.")
    if state_hash(state) != offer.state:
        raise StateCorrupt(f"A checkpoint of {offer.name} is damaged.")
    form = ParentForm(
        reference=offer.name,
        definition=candidate_definition(row),
        factories=factories,
        examples=(example,),
    )
    return form, state
