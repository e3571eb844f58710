"""The state that a candidate begins with, made from a parent's tensors. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch

from mmdb.train.compute.encoding import Encoding
from mmdb.train.compute.exact import exact
from mmdb.train.compute.initial import build
from mmdb.train.compute.live import encode, weights
from mmdb.train.warm.carrying import Unfit, carry, fill
from mmdb.train.warm.spec import WarmResult, WarmSpec

_MODEL = "model."  # as in an encoded state, so that `weights` reads both


def make(spec: WarmSpec, tensors: bytes) -> tuple[WarmResult, bytes]:
    """Return what was carried over, and the candidate's encoded state; b"" where nothing was.

    The state depends on the spec and the tensors alone: the weights of the candidate's seed, with
    the parent's in their place, and a fresh optimizer.

    Args:
        tensors: an encoded state, or what `packed` returns.
    """
    with exact(0):
        live = build(spec.candidate)
        try:
            carried = carry(
                live.module,
                [spec.example.inputs()],
                spec.parent,
                weights(tensors),
                seed=spec.candidate.seed,
                shrink=spec.shrink,
            )
        except Unfit as refusal:
            return WarmResult(refused=str(refusal), is_final=refusal.is_final), b""
        fill(live.module, carried.tensors)
        state = encode(live)
    result = WarmResult(
        similarity=carried.similarity,
        coverage=carried.coverage,
        exact=carried.exact,
        reasons=carried.reasons,
        notes=carried.notes,
        origins=carried.origins,
    )
    return result, state


def packed(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return a model's tensors as bytes that `make` takes; tied ones are written once.

    Raises:
        KeyError: safetensors has no name for a dtype.
    """
    found: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    for path, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and key in first:
            aliases[path] = first[key]
            continue
        first[key] = path
        found[_MODEL + path] = tensor.detach().contiguous()
    return bytes(Encoding(found, {"mmdb": json.dumps({"aliases": aliases})}))
