"""Features as rows: what they are, blocks of them, and how a run uses them."""

from __future__ import annotations

from blake3 import blake3

from mmdb.api import Database
from mmdb.data.feature_files import PackedFeatures
from mmdb.store import stored_features
from mmdb.store.stored_features import FeatureSpec, FeatureUse, StoredFeature

KEY, OTHER_KEY = b"k" * 32, b"l" * 32


def spec(key: bytes = KEY, **changes: object) -> FeatureSpec:
    """Return features of the dataset at layer2."""
    given: dict[str, object] = {
        "feature_key": key, "dataset_id": 1, "owner": "", "prefix_key": b"p" * 32,
        "layer": "layer2", "pool": "mean", "storage": "float32", "shape": (8,),
        "architecture_hash": b"a" * 32, "tensors_hash": b"t" * 32, "network_hash": b"n" * 32,
        "depth": 2, "backbone": "resnet@3",
        "model_id": 7, "seed": None, "row_bytes": 32,
    }  # fmt: skip
    return FeatureSpec(**given | changes)  # type: ignore[arg-type]


def add(db: Database, key: bytes = KEY, **changes: object) -> StoredFeature:
    """Make features known."""
    return stored_features.put(db.connection, [spec(key, **changes)])[key]


def blocks(count: int = 6, size: int = 100_000) -> list[PackedFeatures]:
    """Return blocks of 10 rows each."""
    data = [bytes([i]) * size for i in range(count)]
    return [
        PackedFeatures(ordinal=i, row_count=10, digest=blake3(d).digest(), data=d)
        for i, d in enumerate(data)
    ]


def use(feature: StoredFeature, **changes: object) -> FeatureUse:
    """Return how a run gets features."""
    given: dict[str, object] = {
        "feature_id": feature.feature_id, "choice": "stored", "reason": "It saves the most.",
        "candidates": 8, "uses": 120, "byte_count": 600_000, "saved_s": 12.5, "planned_s": 1.5,
        "layer": feature.layer, "network_hash": b"n" * 32, "depth": 2, "backbone": feature.backbone,
        "model_id": feature.model_id,
    }  # fmt: skip
    return FeatureUse(**given | changes)  # type: ignore[arg-type]
