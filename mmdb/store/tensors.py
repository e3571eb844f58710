"""Content-addressed tensors: stored once, however many models hold them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import blake3
import torch

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.store.states import chunks

_Q = load("models")


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """Return a tensor's elements, little-endian and row-major."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def tensor_hash(dtype: str, shape: Sequence[int], data: bytes) -> bytes:
    """Return a tensor's name: BLAKE3-256 over dtype, shape and bytes, 32 bytes."""
    head = json.dumps([dtype, list(shape)]).encode()
    return blake3.blake3(len(head).to_bytes(8, "little") + head).update(data).digest()


def put_tensor(connection: Connection, tensor: torch.Tensor) -> bytes:
    """Store a tensor unless it is there, and return its hash."""
    data, dtype = tensor_bytes(tensor), str(tensor.dtype).removeprefix("torch.")
    name = tensor_hash(dtype, tensor.shape, data)
    if connection.rows(_Q.find_tensor, tensor_hash=name):
        return name
    added = connection.rows(
        _Q.add_tensor,
        tensor_hash=name,
        dtype=dtype,
        shape=list(tensor.shape),
        byte_count=len(data),
    )
    if added:  # else another session has just stored it
        connection.run_many(
            _Q.add_tensor_chunk,
            ({"tensor_hash": name, "ordinal": k, "data": chunk} for k, chunk in chunks(data)),
        )
    return name


def get_tensor(
    connection: Connection, name: bytes, dtype: str, shape: Sequence[int]
) -> torch.Tensor:
    """Return a stored tensor, on the CPU."""
    data = bytearray(b"".join(r["data"] for r in connection.rows(_Q.read_tensor, tensor_hash=name)))
    kind: torch.dtype = getattr(torch, dtype)
    if not data:
        return torch.empty(tuple(shape), dtype=kind)
    return torch.frombuffer(data, dtype=kind).reshape(tuple(shape))
