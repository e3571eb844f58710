"""Names of frozen layers by their content: what they compute, and with which numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
from blake3 import blake3
from torch import Tensor, nn

from mmdb.graph.spec.layer_form import traced
from mmdb.store.content import dtype_name, raw_bytes
from mmdb.train.compute.device import CPU
from mmdb.train.features.backbone import arguments_of
from mmdb.train.spec import CandidateSpec


class Identities:
    """Hashes of a network's parts; a tensor is hashed once."""

    def __init__(self, candidate: CandidateSpec) -> None:
        self._candidate = candidate
        self._hashes: dict[int, tuple[Tensor, bytes]] = {}  # a tensor keeps its id taken

    def architecture(self, layers: nn.Module, cut: str, pool: str) -> bytes:
        """Return a hash of what layers compute, 32 bytes.

        Where their forward was followed whole, names and what comes after the cut do not count.

        Args:
            layers: up to the cut, not pooled.
        """
        structure = traced(layers)
        found = blake3(b"mmdb.layers" + structure.canonical_hash + pool.encode())
        if not structure.is_traced:
            candidate = self._candidate
            known = [candidate.architecture, arguments_of(candidate), candidate.factories, cut]
            found.update(json.dumps(known, sort_keys=True).encode())
        return found.digest()

    def tensors(self, layers: nn.Module) -> bytes:
        """Return a hash of the tensors of layers, 32 bytes: in their order, without their names."""
        return blake3(b"".join(self._hash(tensor) for tensor in _tensors(layers))).digest()

    def _hash(self, tensor: Tensor) -> bytes:
        if id(tensor) not in self._hashes:
            form = f"{dtype_name(tensor.dtype)}{list(tensor.shape)}".encode()
            data = raw_bytes(tensor.detach().to(CPU).contiguous())
            self._hashes[id(tensor)] = tensor, blake3(form).update(data.data).digest()
        return self._hashes[id(tensor)][1]


def _tensors(layers: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors that layers compute with, those that are no buffers among them."""
    kept = layers.state_dict(keep_vars=True)
    yield from (tensor for tensor in kept.values() if isinstance(tensor, Tensor))
    yield from (buffer for path, buffer in layers.named_buffers() if path not in kept)
    for module in layers.modules():
        yield from (value for value in vars(module).values() if isinstance(value, torch.Tensor))
