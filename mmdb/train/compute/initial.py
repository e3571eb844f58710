"""A candidate with the state that it begins with."""

from __future__ import annotations

import torch

from mmdb.graph.build import initial_module
from mmdb.train.candidate.config import parse_config
from mmdb.train.compute.device import CPU
from mmdb.train.compute.live import Live, build_live
from mmdb.train.spec import CandidateSpec


def build(candidate: CandidateSpec, device: torch.device = CPU) -> Live:
    """Return a candidate with its initial state, which its seed alone decides.

    The state is drawn on the CPU, so that it is the same on every device.
    """
    config = parse_config(candidate.config, candidate.targets, candidate.functions)
    module = initial_module(
        candidate.architecture,
        config.arguments,
        candidate.input_shape,
        candidate.outputs,
        candidate.factories,
        seed=candidate.seed,
    )
    return build_live(module, config, device)
