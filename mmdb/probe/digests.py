"""Tensors reduced to digests: a hash that names the bytes, statistics that size a difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import torch

from mmdb.errors import InvalidInput
from mmdb.probe.observations import TensorDigest
from mmdb.store.tensors.tensor_bytes import raw_bytes, tensor_hash

#: Elements whose statistics are taken at once: few enough to stay in the processor's cache, and for
#: torch and BLAS to use one thread each. Their threads, taking turns, wait on each other for 10 ms.
_PIECE = 1 << 13


def tensors_in(value: object, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and the tensor of each tensor in nested tuples, lists, mappings, dataclasses.

    Whatever else there is in a value is passed over.

    >>> [name for name, _ in tensors_in((torch.zeros(1), {"h": torch.zeros(1), "n": 3}))]
    ['0', '1.h']
    """
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            yield from tensors_in(value.unbind(), name)
        else:
            yield name, value
        return
    for key, item in _items(value):
        yield from tensors_in(item, f"{name}.{key}" if name else str(key))


def _items(value: object) -> Iterator[tuple[object, object]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple | list):
        yield from enumerate(value)
    elif is_dataclass(value):
        yield from ((each.name, getattr(value, each.name)) for each in fields(value))


class Digests:
    """The digests of one probe by hash, and the tensors themselves where they are to be kept.

    Args:
        keep: whether to keep tensors.
        max_bytes: of tensors to keep; one that does not fit is counted in `dropped`.
    """

    def __init__(self, *, keep: bool, max_bytes: int) -> None:
        self.found: dict[str, TensorDigest] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.dropped = 0
        self._room = max_bytes if keep else 0
        self._keep = keep

    def add(self, tensor: torch.Tensor) -> str:
        """Return a tensor's hash in hex: the name under which the store keeps the same tensor."""
        plain = _plain(tensor)
        dtype = str(tensor.dtype).removeprefix("torch.")
        name = tensor_hash(dtype, plain.shape, raw_bytes(plain)).hex()
        if name not in self.found:
            self.found[name] = _digest(dtype, plain)
            self._keep_copy(name, plain)
        return name

    def add_all(self, value: object) -> dict[str, str]:
        """Return the hashes of all tensors in a nested value by name."""
        return {name: self.add(tensor) for name, tensor in tensors_in(value)}

    def _keep_copy(self, name: str, tensor: torch.Tensor) -> None:
        if not self._keep:
            return
        if tensor.nbytes > self._room:
            self.dropped += 1
            return
        self._room -= tensor.nbytes
        self.tensors[name] = tensor.clone()


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements, row-major on the CPU; may share the tensor's memory."""
    if tensor.is_meta:
        raise InvalidInput(
            "The probe met a tensor on the meta device, which has no elements.",
            hint="Load the weights before probing.",
        )
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    return tensor.cpu().resolve_conj().resolve_neg().contiguous()


def _digest(dtype: str, tensor: torch.Tensor) -> TensorDigest:
    low, high, total, squares, nan_count = np.inf, -np.inf, 0.0, 0.0, 0
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    try:
        for piece in flat.reshape(-1).split(_PIECE):
            values = piece.double().numpy()
            with np.errstate(all="ignore"):  # infinite elements are what is to be shown
                square = float(values.dot(values))
                if square != square:  # some are NaN
                    count = len(values)
                    values = values[~np.isnan(values)]
                    nan_count += count - len(values)
                    square = float(values.dot(values))
                squares += square
                if len(values):
                    low, high = min(low, values.min()), max(high, values.max())
                    total += float(values.sum())
    except (NotImplementedError, RuntimeError):  # bits that torch cannot turn into numbers
        nan_count, low = 0, np.inf
    return TensorDigest(
        dtype=dtype,
        shape=tuple(tensor.shape),
        nan_count=nan_count,
        **_statistics(float(low), float(high), total, squares, flat.numel() - nan_count),
    )


def _statistics(
    low: float, high: float, total: float, squares: float, count: int
) -> dict[str, float | None]:
    if low > high:  # no element that is a number
        return dict.fromkeys(("min", "max", "mean", "l2"))
    mean = total / count
    return {
        "min": low,
        "max": high,
        "mean": mean if mean == mean else None,  # of both infinities
        "l2": float(np.sqrt(squares)),
    }
