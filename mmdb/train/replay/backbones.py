"""What frozen layers take out of the database: their model's tensors, and stored features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mmdb.data.dataset import find_decoding
from mmdb.data.feature_files import FeatureBlock, unpack_features
from mmdb.db.connection import Connection, Row
from mmdb.errors import BackboneMissing, ModelNotFound, NotReplayable
from mmdb.store.stored_features import find_of_run, read_blocks
from mmdb.train.compute.backbone import Backbones
from mmdb.train.values.feature_spec import READY, ids_of
from mmdb.train.values.spec import CandidateSpec


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
    from mmdb.train.replay.parent_models import example_of, model_and_weights, packed_weights

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
