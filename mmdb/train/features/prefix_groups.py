"""Groups a run's candidates by the frozen layers that they share, and names features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from blake3 import blake3

from mmdb.data.dataset import StoredDataset
from mmdb.data.feature_files import row_bytes
from mmdb.db.connection import Row
from mmdb.store.stored_features import FeatureSpec, FeatureUse, StoredFeature
from mmdb.train.candidate.config import ARCHITECTURE_PREFIX
from mmdb.train.features.storage_choice import Chosen, Demand
from mmdb.train.values.feature_options import FrozenOptions, parse_frozen_options
from mmdb.train.values.feature_spec import FrozenPrefix


def prefix_key(architecture_hash: bytes, tensors_hash: bytes) -> bytes:
    """Return the name of frozen layers, 32 bytes.

    Args:
        architecture_hash: of the layers up to the cut, the pooling among them.
        tensors_hash: over the hashes of their tensors.
    """
    return blake3(b"mmdb.prefix" + architecture_hash + tensors_hash).digest()


def feature_key(dataset_hash: bytes, prefix: bytes, storage: str, environment: str) -> bytes:
    """Return the name of the features that frozen layers make of a dataset, 32 bytes.

    Args:
        environment: as hops record it: another torch or processor may give other bits.
    """
    about = f"{storage}/{environment}".encode()
    return blake3(b"mmdb.feature" + dataset_hash + prefix + about).digest()


def partition_key(feature: bytes, owner: str, content_hash: bytes) -> bytes:
    """Return the key under which a node's cache has the features of a partition, 32 bytes.

    Args:
        owner: whose features they are: the cache knows no rights, and teams share nothing in it.
    """
    return blake3(b"mmdb.feature_part" + feature + content_hash + owner.encode()).digest()


def network_hash(
    architecture: Mapping[str, Any], arguments: Mapping[str, Any], origin: Mapping[str, Any]
) -> bytes:
    """Return what names a network with its tensors, 32 bytes; equal ones may have several names.

    Args:
        arguments: that a configuration gives the architecture.
        origin: of the tensors: the seed, or the model.
    """
    whole = [architecture, arguments, origin]
    return blake3(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).digest()


#: Bytes of a file of features beside its numbers, at most.
HEADER_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCandidate:
    """A candidate of which it is not settled how its features come to it."""

    candidate_id: int
    config: Mapping[str, Any]
    transfer: FrozenOptions

    @property
    def pool(self) -> str:
        """The pooling that it asks for; the rest of a network takes features as they are."""
        return self.transfer.pool if self.transfer.head is not None else "none"

    @property
    def shares(self) -> bool:
        """Whether it may train on what was computed before."""
        return not self.config.get("augment") and self.transfer.batch_norm == "frozen"

    @property
    def arguments(self) -> str:
        """Of the architecture, as JSON: members with equal ones freeze layers of one network."""
        return json.dumps(arguments_of(self.config), sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixGroup:
    """Frozen layers with the same features, and the members that train on them."""

    prefix: FrozenPrefix
    spec: FeatureSpec
    members: tuple[PendingCandidate, ...]


def arguments_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a configuration gives the architecture."""
    prefix = ARCHITECTURE_PREFIX
    return {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}


def network_of(row: Row, arguments: Mapping[str, Any], model_id: int | None) -> bytes:
    """Return what names the network whose layers a candidate freezes.

    Args:
        row: of `find_candidate`, of any candidate of the run.
    """
    origin = {"seed": row["run_seed"]} if model_id is None else {"model": model_id}
    return network_hash(json.loads(row["architecture"]), arguments, origin)


def freezes(row: Row) -> bool:
    return json.loads(row["config"]).get("freeze_up_to") is not None


def pending_candidate(row: Row) -> PendingCandidate:
    config = json.loads(row["config"])
    transfer = parse_frozen_options(config)
    assert transfer is not None
    return PendingCandidate(candidate_id=row["candidate_id"], config=config, transfer=transfer)


def demand_of(
    group: PrefixGroup, dataset: StoredDataset, epochs: int, stored: Mapping[int, object]
) -> Demand:
    """Return what a group asks for, as the choice sees it."""
    parts, spec = dataset.partitions, group.spec
    rows = sum(part.row_count for part in parts)
    decoded = row_bytes(spec.shape, "float32")
    sharing = [member for member in group.members if member.shares]
    fixed = None
    if group.prefix.not_reusable is not None:
        fixed = ("whole" if group.prefix.learns else "streamed", group.prefix.not_reusable)
    elif not sharing:
        fixed = _unshared(group.members[0])
    return Demand(
        key=spec.feature_key.hex(),
        backbone=spec.network_hash.hex(),
        candidates=len(sharing) or len(group.members),
        passes=epochs,
        rows=rows,
        row_s=group.prefix.row_s,
        disk_bytes=rows * spec.row_bytes,
        cache_bytes=rows * decoded + len(parts) * HEADER_BYTES,
        partition_bytes=max(part.row_count for part in parts) * decoded,
        raw_bytes=rows * _numbers(dataset.input_shape) * 4,
        found_rows=sum(part.row_count for part in parts if part.part_id in stored),
        is_source=spec.storage == "float32" and spec.pool == "none",
        fixed=fixed,
    )


def _unshared(member: PendingCandidate) -> tuple[str, str]:
    if member.transfer.batch_norm == "train":
        reason = "Normalisation before the cut goes on learning: batch_norm is 'train'."
        return "whole", reason
    return "streamed", "Rows are augmented anew in each epoch."


def use_of(
    group: PrefixGroup, feature: StoredFeature, chosen: Chosen, hops: int, demand: Demand
) -> FeatureUse:
    kept = {"stored": demand.disk_bytes, "memory": demand.cache_bytes}
    return FeatureUse(
        feature_id=feature.feature_id,
        choice=chosen.choice,
        reason=chosen.reason,
        candidates=len(group.members),
        uses=len(group.members) * hops,
        byte_count=kept.get(chosen.choice, 0),
        saved_s=chosen.saved_s,
        planned_s=chosen.seconds,
        layer=group.spec.layer,
        network_hash=group.spec.network_hash,
        depth=group.spec.depth,
        backbone=group.spec.backbone,
        model_id=group.spec.model_id,
    )


def with_more(use: FeatureUse, group: PrefixGroup, hops: int) -> FeatureUse:
    """Return how features come to a run that more of its candidates train on than before."""
    count = len(group.members)
    return replace(use, candidates=use.candidates + count, uses=use.uses + count * hops)


def _numbers(shape: Any) -> int:
    if isinstance(shape, dict):
        return sum(prod(one) for one in shape.values())
    return prod(shape)
