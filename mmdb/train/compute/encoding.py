"""The bytes of a safetensors file over tensors where they lie.

A hop whose state stays in the session needs the hash of its encoding and not the encoding: writing
out 90 MB costs 100 ms, hashing them in place 25.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import safetensors
import safetensors.torch
import torch
from blake3 import blake3

from mmdb.errors import StateCorrupt
from mmdb.store.files.safetensors_format import METADATA, NAMES
from mmdb.store.tensors.tensor_bytes import raw_bytes

#: Kinds in the order in which safetensors writes tensors; within a kind, by name.
_ORDER = (
    *("U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16"),
    *("F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"),
)
_RANKS = {torch_dtype: _ORDER.index(n) for torch_dtype, n in NAMES.items() if n in _ORDER}


class StateEncoding:
    """What `safetensors.torch.save` would return, as long as the tensors stay as they are."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
        """Lay out contiguous tensors on the CPU.

        Raises:
            KeyError: safetensors has no name for a dtype.
        """
        names = sorted(tensors, key=lambda name: (_RANKS[tensors[name].dtype], name))
        header: dict[str, object] = {METADATA: metadata}
        end = 0
        for name in names:
            tensor = tensors[name]
            offsets = [end, end := end + tensor.nbytes]
            shape = list(tensor.shape)
            entry = {"dtype": NAMES[tensor.dtype], "shape": shape, "data_offsets": offsets}
            header[name] = entry
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._head = len(text).to_bytes(8, "little") + text
        self._body = [raw_bytes(tensors[name]).data for name in names]
        self._size = len(self._head) + end

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join([self._head, *self._body])

    def digest(self) -> bytes:
        """Return the BLAKE3-256 of the bytes."""
        found = blake3(self._head)
        for part in self._body:
            found.update(part)
        return found.digest()


def decode(state: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors of an encoded state by name, and the header in its metadata.

    Raises:
        StateCorrupt: its bytes are no encoding, whatever their hash.
    """
    size = int.from_bytes(state[:8], "little")
    try:
        header = json.loads(json.loads(state[8 : 8 + size])[METADATA]["mmdb"])
        tensors = safetensors.torch.load(state)
    except (ValueError, LookupError, TypeError, safetensors.SafetensorError) as error:
        raise StateCorrupt(f"A state of {len(state)} bytes is none: {error}") from error
    if not isinstance(header, dict):
        raise StateCorrupt(f"A state of {len(state)} bytes has no header.")
    return tensors, header
