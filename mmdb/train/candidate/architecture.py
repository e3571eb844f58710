"""Which candidates have the same architecture, whatever else they are trained with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from blake3 import blake3

from mmdb.train.candidate.config import ARCHITECTURE_PREFIX
from mmdb.train.features.options import KEYS as TRANSFER_KEYS


def architecture_hash(architecture: Mapping[str, Any], config: Mapping[str, Any]) -> bytes:
    """Return BLAKE3-256 of an architecture with the arguments that a configuration gives it.

    Args:
        architecture: parsed, a factory with its own arguments or a layer graph.
        config: what it freezes and puts in place of the rest counts, too.
    """
    prefix = ARCHITECTURE_PREFIX
    given = {k.removeprefix(prefix): v for k, v in config.items() if k.startswith(prefix)}
    whole: object = [architecture, given]
    if "factory" in architecture:
        whole = [architecture["factory"], {**architecture.get("arguments", {}), **given}]
    if config.get("freeze_up_to") is not None:
        whole = [whole, {key: config.get(key) for key in TRANSFER_KEYS}]
    return blake3(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).digest()
