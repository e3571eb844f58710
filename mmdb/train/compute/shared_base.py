"""The frozen tensors of adapted networks: a session has them once, and no state carries them.

They are those of the model that a candidate began with. Each of its states has the name of that
base in its header, and the rest of its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mmdb.errors import ArchitectureError, BackboneMissing
from mmdb.graph.adapted import frozen_paths
from mmdb.store.models.model_rows import ModelDefinition
from mmdb.store.models.module import build_empty, build_filled, fill
from mmdb.store.tensors.tensor_bytes import raw_bytes
from mmdb.train.candidate.config import parse_config
from mmdb.train.compute.backbone import Backbones, arguments_of, digest_of
from mmdb.train.compute.live import Live, build_live
from mmdb.train.values.feature_spec import base_digest, base_name
from mmdb.train.values.spec import CandidateSpec


def left_out(
    live: Live, candidate: CandidateSpec, model: str, tensors: Mapping[str, Tensor]
) -> Live:
    """Return a candidate, freshly begun, whose states leave out what a model has; or as it is.

    Args:
        model: hash of the model's weights in hex.
        tensors: the model's, in the order of the candidate's columns.
    """
    own = live.module.state_dict()
    paths = frozen_paths(live.module)
    if not paths or not all(_is_same(own[path], tensors.get(path)) for path in paths):
        return live
    base = base_name(model, digest_of(own, paths))
    config = parse_config(candidate.config, candidate.targets, candidate.functions)
    return build_live(live.module, config, live.device, omitted=paths, base=base, is_partial=True)


def shared_module(
    candidate: CandidateSpec, backbones: Backbones
) -> tuple[nn.Module, frozenset[str]]:
    """Return a candidate's module over the tensors of its base, and their paths; the other tensors
    are for a state to fill.

    Raises:
        BackboneMissing: the model's tensors are not here, or are others.
    """
    assert candidate.base is not None
    definition = ModelDefinition(
        architecture=candidate.architecture,
        arguments=arguments_of(candidate),
        input_shape=candidate.input_shape,
        outputs=candidate.outputs,
    )
    try:
        module = build_empty(definition, candidate.factories)
    except ArchitectureError:  # a factory that cannot work without memory
        module = build_filled(definition, candidate.factories, seed=0)
    paths = frozen_paths(module)
    base = backbones.tensors(candidate.base)
    if not paths <= base.keys() or backbones.digest(candidate.base, paths) != base_digest(
        candidate.base
    ):
        raise BackboneMissing("The model that the candidate adapts has other tensors by now.")
    found: dict[str, Tensor] = {}
    blank: dict[int, Tensor] = {}
    for path, own in module.state_dict(keep_vars=True).items():
        if path in paths:
            found[path] = base[path]
        else:  # what is tied stays so
            made = torch.empty(own.shape, dtype=own.dtype, device=backbones.device)
            found[path] = blank.setdefault(id(own), made)
    learns = {path: p.requires_grad for path, p in module.named_parameters(remove_duplicate=False)}
    fill(module, found, learns, "the base")
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            if buffer.is_meta:  # a transient one, which is a part of each state
                part._buffers[name] = torch.empty_like(buffer, device=backbones.device)
    return module, paths


def _is_same(own: Tensor, other: Tensor | None) -> bool:
    if other is None or own.shape != other.shape or own.dtype != other.dtype:
        return False
    return bool((raw_bytes(own) == raw_bytes(other)).all())
