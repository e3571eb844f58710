"""What is made again beside a model: its parents, and the features of its frozen backbone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from mmdb.data.dataset import find_decoding
from mmdb.data.decoding import Decoding
from mmdb.data.feature_files import FeatureBlock, unpack_features
from mmdb.db.connection import Connection, Row
from mmdb.errors import (
    BackboneMissing,
    DatasetNotFound,
    ModelNotFound,
    NotReplayable,
    UnsupportedTensor,
)
from mmdb.store.models.model_rows import SavedModel, model_of
from mmdb.store.stored_features import find_of_run, read_blocks
from mmdb.train.compute.backbone import Backbones
from mmdb.train.compute.live import packed
from mmdb.train.replay.hop_replay import at_once
from mmdb.train.replay.recipe_replay import Compute, Weights, load_weights
from mmdb.train.values.feature_spec import READY, ids_of
from mmdb.train.values.spec import CandidateSpec
from mmdb.train.values.warm_spec import Example, ParentForm, row_map


def read_backbones(
    connection: Connection,
    candidate: CandidateSpec,
    *,
    begins: bool = False,
    follow: Callable[..., Any] | None = None,
) -> Backbones | None:
    """Return where a candidate's network with frozen layers can be had; None: it freezes nothing.

    Args:
        begins: whether its initial state is wanted; any other of the choice "whole" is complete.
        follow: runs the replay of a model that is kept as a recipe.
    Raises:
        BackboneMissing, CorruptTensor, RecipeError
    """
    frozen = candidate.frozen
    if frozen is None:
        return None
    backbones = Backbones()
    if frozen.backbone is not None and (begins or frozen.choice != "whole"):
        backbones.take(frozen.backbone, read_backbone(connection, candidate, follow=follow))
    return backbones


def read_backbone(
    connection: Connection, candidate: CandidateSpec, *, follow: Callable[..., Any] | None = None
) -> bytes:
    """Return the tensors of the model whose layers a candidate freezes, packed, in the order of
    the columns of the candidate's dataset.

    Raises:
        BackboneMissing, BackboneMismatch, CorruptTensor, RecipeError
    """
    from mmdb.train.compute.translate import by_name

    assert candidate.frozen is not None and candidate.frozen.backbone is not None
    model_id, dataset_id = ids_of(candidate.frozen.backbone)
    decoding = find_decoding(connection, dataset_id)
    given = {} if follow is None else {"follow": follow}
    try:
        model, weights = model_and_weights(
            connection, candidate.factories, model_id, decoding=decoding, **given
        )
        moved = by_name(model, weights, example_of(decoding).inputs())
        return packed_weights(model, moved)
    except (ModelNotFound, NotReplayable) as error:
        raise BackboneMissing(
            f"Candidate {candidate.candidate_id} freezes layers of a model that is gone: "
            f"{error.message}"
        ) from error


def read_features(
    connection: Connection, candidate: CandidateSpec, row: Row, part_id: int
) -> np.ndarray | None:
    """Return a partition's features, float32 (n, *shape); None where they are not stored.

    Also None where the candidate does not train on them, though others of its run may.

    Args:
        row: of `find_candidate`.
    Raises:
        FeatureCorrupt
    """
    feature_id = row.get("feature_id")
    if feature_id is None or candidate.frozen is None or candidate.frozen.choice not in READY:
        return None
    features = find_of_run(connection, row["run_id"])
    (own,) = [one for one in features if one.feature_id == feature_id]
    chunks = []
    for given in read_blocks(connection, feature_id, part_id):
        block = FeatureBlock(
            ordinal=given.ordinal,
            row_count=given.row_count,
            digest=given.digest,
            data=given.data,
        )
        chunks.append(unpack_features(block, own.shape, own.storage))
    return np.concatenate(chunks) if chunks else None


def read_model(
    connection: Connection,
    factories: Mapping[str, str],
    model_id: int,
    *,
    decoding: Decoding | None,
    follow: Compute = at_once,
) -> tuple[ParentForm, bytes]:
    """Return a model as a parent, and its tensors as `packed` writes them.

    Args:
        decoding: of the rows that the child reads; None where they are not known.
        follow: runs the replay of a model that is kept as a recipe.
    Raises:
        CorruptTensor, RecipeError, ReplayMismatch: its tensors cannot be had.
        UnsupportedTensor: one is of a dtype that no file of tensors has.
    """
    form, weights = model_and_weights(
        connection, factories, model_id, decoding=decoding, follow=follow
    )
    return form, packed_weights(form, weights)


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
    own = _decoding(connection, model)
    form = ParentForm(
        reference=model.reference,
        definition=model.definition,
        factories=factories,
        examples=_examples(model, own, decoding),
        rows=row_map(decoding, own),
    )
    return form, load_weights(connection, model, compute=follow)


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
