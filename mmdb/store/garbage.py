"""What kinds of rows become garbage: how each is found, locked, checked again and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from mmdb.db.queries import Query, load

_Q = load("gc")

#: Why a tensor that no model needs stays or goes, by its place in the query `plan_tensors`.
REASONS = {
    1: "their model was dropped within the grace period",
    2: "differences of other tensors are kept against them",
    3: "a list of tensors that another model shares names them",
    4: "stored within the grace period",
    5: "nothing names them",
}
GARBAGE = 5
#: Why features stay or go, by their place in the query `plan_features`; they can be computed again.
FEATURE_REASONS = {
    1: "their dataset was dropped",
    2: "no run has used them within the grace period",
    3: "a run that has not finished uses them",
    4: "a run used them within the grace period",
}
FEATURES_GO = {1, 2}
_DROPPED = "dropped before the grace period"
_NO_MODEL = "no model has them"
_NO_DATASET = "their dataset was dropped before the grace period"

Grace = str | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Rows of one kind that are garbage, or are kept though no model needs them."""

    what: str  # "model", "manifest", "tensor", "architecture", "checkpoint", "feature", "stray"
    items: int
    bytes: int | None  # stored; None for kinds that hold none
    goes: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Kind:
    """How rows of one kind are found, locked, checked again and deleted."""

    what: str
    reason: str
    find: Query
    deletes: Sequence[Query]
    lock: Query | None = None  # PostgreSQL's: nobody else writes to a DuckDB file
    recheck: Query | None = None  # rows with id, and bytes where the kind holds some


MODELS = Kind(
    "model",
    _DROPPED,
    _Q.find_garbage_models,
    (_Q.delete_changes, _Q.delete_recipe_tensors, _Q.empty_models),
    _Q.lock_models,
)
MANIFESTS = Kind(
    "manifest",
    _NO_MODEL,
    _Q.find_garbage_manifests,
    (_Q.delete_manifest_tensors, _Q.delete_manifests),
    _Q.lock_manifests,
    _Q.recheck_manifests,
)
TENSORS = Kind(
    "tensor",
    REASONS[GARBAGE],
    _Q.find_garbage_tensors,
    (_Q.delete_chunks, _Q.delete_encodings, _Q.delete_tensors),
    _Q.lock_tensors,
    _Q.recheck_tensors,
)
ARCHITECTURES = Kind(
    "architecture",
    _NO_MODEL,
    _Q.find_garbage_architectures,
    (
        _Q.delete_architecture_nodes,
        _Q.delete_architecture_edges,
        _Q.delete_outlines,
        _Q.delete_architectures,
    ),
    _Q.lock_architectures,
    _Q.recheck_architectures,
)
PREFIXES = Kind(
    "prefix",
    "no architecture has them",
    _Q.find_garbage_prefixes,
    (_Q.delete_prefixes,),
    _Q.lock_prefixes,
    _Q.recheck_prefixes,
)
FEATURES = Kind(
    "feature",
    "no run needs them",
    _Q.find_garbage_features,
    (_Q.delete_feature_blocks, _Q.delete_feature_parts),
    _Q.lock_features,
    _Q.recheck_features,
)
CHECKPOINTS = Kind(
    "checkpoint",
    _NO_DATASET,
    _Q.find_garbage_checkpoints,
    (_Q.delete_checkpoint_chunks, _Q.delete_checkpoints),
)
