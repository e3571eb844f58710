"""What a worker needs to know of frozen layers and their features, as plain values that travel."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mmdb.errors import StateCorrupt

#: Rows that pass the frozen layers at once: part of what decides the bits of features.
FEATURE_ROWS = 128
#: How features are kept, the default first; of what is lossy the decoded values are trained on.
STORAGES = ("float32", "float16", "int8")
#: Where features come from. "whole": nothing is shared, the frozen layers are a part of the state.
CHOICES = ("stored", "memory", "recomputed", "streamed", "whole")
#: Choices with which features lie in the node's cache before a hop.
READY = ("stored", "memory")
#: Choices with which a candidate trains on features, and not on rows.
ON_FEATURES = (*READY, "recomputed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What of a candidate does not train, and how its features come to it.

    Attributes:
        cut: path of the module after which training begins.
        pool: "mean", "flatten" or "none"; "auto" until a row of features has been seen.
        head: an architecture over the features; None: the rest of the network.
        adapter: what is added to the layers after the cut, which are frozen then, too.
        seed: of the frozen tensors, where there is no backbone.
        backbone: names the tensors of the model whose layers are frozen; see `backbone_name`.
        storage: one of STORAGES.
        choice: one of CHOICES.
    """

    cut: str
    pool: str = "none"
    head: dict[str, Any] | None = None
    adapter: dict[str, Any] | None = None
    seed: int = 0
    backbone: str | None = None
    storage: str = STORAGES[0]
    choice: str = "streamed"


def backbone_name(model_id: int, dataset_id: int) -> str:
    """Return what names a model's tensors in the order of a dataset's columns."""
    return f"{model_id}/{dataset_id}"


def ids_of(name: str) -> tuple[int, int]:
    """Return the ids of the model and of the dataset that `backbone_name` was given."""
    model_id, _, dataset_id = name.partition("/")
    return int(model_id), int(dataset_id)


def base_name(weights_hash: str, digest: str = "") -> str:
    """Return what names the frozen tensors of a model that candidates adapt.

    Args:
        weights_hash: of the model, in hex.
        digest: of the tensors as they are for the candidates' columns, in hex; of all of the
            model's, as they are stored, if left out.
    """
    return f"{weights_hash}/{digest}"


def base_hash(name: str) -> bytes:
    """Return the hash of the weights of the model that `base_name` was given."""
    return bytes.fromhex(name.partition("/")[0])


def base_digest(name: str) -> str:
    """Return the digest, in hex, that `base_name` was given."""
    return name.partition("/")[2]


def base_in(state: bytes) -> str | None:
    """Return what has the tensors that an encoded state leaves out; None where it is whole.

    Raises:
        StateCorrupt
    """
    size = int.from_bytes(state[:8], "little")
    try:
        found = json.loads(json.loads(state[8 : 8 + size])["__metadata__"]["mmdb"]).get("base")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StateCorrupt(f"A state of {len(state)} bytes has no header.") from error
    return None if found is None else str(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Features of a partition that are to be computed.

    Attributes:
        key: in hex, their place in the node's cache.
    """

    cut: str
    pool: str
    storage: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialized:
    """Features that lie in the node's cache now; everything by key.

    Attributes:
        max_error, mean_error: of the storage, as shares of the largest magnitude; 0 of float32.
    """

    seconds: float
    byte_counts: dict[str, int] = field(default_factory=dict)
    max_error: dict[str, float] = field(default_factory=dict)
    mean_error: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPrefix:
    """Frozen layers up to a cut, looked at.

    Attributes:
        architecture_hash, tensors_hash: in hex.
        pool: what it comes to, never "auto".
        shape: of the features of one row.
        row_s: seconds of a row, from the inputs on.
        stage_s: seconds of a row, from the features of `source` on.
        order: place of the cut in the order in which the network runs.
        source: the cut before it, from whose features, not pooled, these can be computed; None:
            only the inputs will do.
        not_reusable: why the features of a row are not a function of the row alone; None: they are.
        learns: whether that is because the layers change as they run; then they cannot be frozen.
    """

    cut: str
    pool: str
    architecture_hash: str
    tensors_hash: str
    shape: tuple[int, ...]
    row_s: float
    stage_s: float
    order: int
    source: str | None = None
    not_reusable: str | None = None
    learns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was found.

    Attributes:
        prefixes: in the order of `ExamineSpec.cuts`.
        environment: in which the features of these rows come out; another one may give other bits.
    """

    prefixes: tuple[FrozenPrefix, ...]
    environment: str = ""
