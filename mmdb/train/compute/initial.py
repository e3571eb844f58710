"""A candidate with the state that it begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mmdb.graph.spec.build import initial_module
from mmdb.train.candidate.config import parse_config
from mmdb.train.candidate.optimizer import check_memory
from mmdb.train.compute.device import CPU
from mmdb.train.compute.live import Live, build_live
from mmdb.train.spec import CandidateSpec

if TYPE_CHECKING:
    from mmdb.train.features.backbone import Backbones


def build(
    candidate: CandidateSpec,
    device: torch.device = CPU,
    backbones: Backbones | None = None,
    *,
    blank: bool = False,
    feature_shape: tuple[int, ...] | None = None,
) -> Live:
    """Return a candidate with its initial state, which its seed alone decides.

    With frozen layers it is the state of what trains, which the backbone decides, too. The state
    is drawn on the CPU, so that it is the same on every device.

    Args:
        backbones: where networks with frozen layers are kept, on `device`.
        blank, feature_shape: see `tail_of`; nothing to candidates without frozen layers.
    """
    config = parse_config(candidate.config, candidate.targets, candidate.functions)
    if candidate.frozen is not None:
        from mmdb.train.features.backbone import Backbones  # loads torch.fx
        from mmdb.train.features.tail import tail_of

        tail = tail_of(
            candidate,
            backbones or Backbones(device),
            blank=blank,
            feature_shape=feature_shape,
        )
        return build_live(
            tail.module,
            config,
            device,
            frozen=tail.layers,
            omitted=tail.omitted,
            is_partial=True,
        )
    module = initial_module(
        candidate.architecture,
        config.arguments,
        candidate.input_shape,
        candidate.outputs,
        candidate.factories,
        seed=candidate.seed,
    )
    if device == CPU:
        check_memory(module, config)
    return build_live(module, config, device)
