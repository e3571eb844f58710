"""Names of features by their content. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from blake3 import blake3


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
