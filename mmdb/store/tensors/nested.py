"""State dicts and arguments as JSON and a few tensors, and back; nothing is pickled. Pure.

The JSON is what it says but for objects with one key that begins with "$":

    {"$tensor": [dtype, start, shape]}   elements of the flat tensor of that dtype
    {"$array": [dtype, start, shape]}    the same as a numpy array
    {"$ints": [start, count]}            a long list of whole numbers, in the flat tensor "int64"
    {"$tuple": value}                    a list that was a tuple
    {"$items": [[key, value], ...]}      a dictionary whose keys are not all plain texts
    {"$counter": value}                  a dictionary that was a collections.Counter
    {"$float": text}                     NaN, infinity, -0.0 and 1e+16: JSON columns change them

A JSON column keeps no order of keys.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mmdb.errors import InvalidRecipe, UnsupportedTensor
from mmdb.store.tensors.tensor_bytes import DTYPES, check_supported, dtype_name

#: One tensor of one dimension for each dtype that occurs, by the dtype's name.
Flat = dict[str, torch.Tensor]

#: Lists of whole numbers from this length on become tensors: Python's generator has 625.
_LONG = 64
_NUMPY = {"bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"} | {
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
}


def flatten(value: Any, name: str = "the recipe") -> tuple[Any, Flat]:
    """Return `value` as a value for JSON, and its tensors, end to end by dtype.

    Args:
        value: dictionaries, lists, tuples, texts, numbers, None, tensors and numpy arrays.
        name: of the value, for the message.
    Raises:
        InvalidRecipe: it holds anything else; the message says where.
    """
    writer = _FlatWriter()
    plain = writer.plain(value, name)
    return plain, writer.flat()


def unflatten(plain: Any, flat: Mapping[str, torch.Tensor]) -> Any:
    """Return the value that `flatten` took apart; its tensors own their memory."""
    if isinstance(plain, list):
        return [unflatten(item, flat) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1:
        (key, inner), *_ = plain.items()
        if key.startswith("$"):
            return _special(key, inner, flat)
    return {key: unflatten(item, flat) for key, item in plain.items()}


class _FlatWriter:
    """Takes a value apart."""

    def __init__(self) -> None:
        self._parts: dict[str, list[torch.Tensor]] = {}
        self._lengths: dict[str, int] = {}

    def flat(self) -> Flat:
        return {
            dtype: _joined(parts) for dtype, parts in self._parts.items() if self._lengths[dtype]
        }

    def plain(self, value: Any, place: str) -> Any:
        match value:
            case None | bool():
                return value
            case torch.Tensor():
                return {"$tensor": self._add(value, place)}
            case np.ndarray() if value.dtype.name in _NUMPY:
                return {"$array": self._add(torch.from_numpy(np.array(value, order="C")), place)}
            case int():
                return int(value)
            case float():
                return _number(float(value))
            case str():
                return _text(value, place)
            case tuple() | list():
                inner = self._list(value, place)
                return {"$tuple": inner} if isinstance(value, tuple) else inner
            case Counter():
                return {"$counter": self._dictionary(value, place)}
            case Mapping():
                return self._dictionary(value, place)
        raise InvalidRecipe(f"{place} is a {type(value).__name__}, which cannot be kept.")

    def _list(self, value: tuple[Any, ...] | list[Any], place: str) -> Any:
        if len(value) >= _LONG and all(type(n) is int and -(2**63) <= n < 2**63 for n in value):
            start = self._add(torch.tensor(value, dtype=torch.int64), place)[1]
            return {"$ints": [start, len(value)]}
        return [self.plain(item, f"{place}[{k}]") for k, item in enumerate(value)]

    def _dictionary(self, value: Mapping[Any, Any], place: str) -> Any:
        if all(type(key) is str and not key.startswith("$") for key in value):
            pairs = value.items()
            return {_text(k, place): self.plain(item, f"{place}.{k}") for k, item in pairs}
        return {
            "$items": [
                [self.plain(key, place), self.plain(item, f"{place}[{key!r}]")]
                for key, item in value.items()
            ]
        }

    def _add(self, tensor: torch.Tensor, place: str) -> list[Any]:
        try:
            check_supported(tensor)
        except UnsupportedTensor as error:
            raise InvalidRecipe(f"{place} is a tensor without plain bytes.") from error
        dtype = dtype_name(tensor.dtype)
        start = self._lengths.get(dtype, 0)
        flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        self._parts.setdefault(dtype, []).append(flat)
        self._lengths[dtype] = start + len(flat)
        return [dtype, start, list(tensor.shape)]


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    """Return tensors end to end, as bytes: torch concatenates not every dtype."""
    return torch.cat([part.view(torch.uint8) for part in parts if len(part)]).view(parts[0].dtype)


def _number(value: float) -> Any:
    is_changed = not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0)
    return {"$float": repr(value)} if is_changed or "e+" in repr(value) else value


def _text(value: str, place: str) -> str:
    if "\0" in value or (not value.isascii() and _is_broken(value)):
        raise InvalidRecipe(f"{place} holds a text that a database cannot keep.")
    return str(value)


def _is_broken(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return True
    return False


def _special(key: str, inner: Any, flat: Mapping[str, torch.Tensor]) -> Any:
    match key:
        case "$tensor":
            return _piece(inner, flat)
        case "$array":
            return _piece(inner, flat).numpy()
        case "$ints":
            start, count = inner
            return flat["int64"][start : start + count].tolist()
        case "$tuple":
            return tuple(unflatten(inner, flat))
        case "$counter":
            return Counter(unflatten(inner, flat))
        case "$float":
            return float(inner)
        case "$items":
            return {
                unflatten(name, flat): unflatten(value, flat)
                for name, value in (tuple(pair) for pair in inner)
            }
    raise InvalidRecipe(f"The stored recipe holds {key!r}, which this version does not know.")


def _piece(place: list[Any], flat: Mapping[str, torch.Tensor]) -> torch.Tensor:
    dtype, start, shape = DTYPES[place[0]], place[1], place[2]
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    memory = flat[place[0]].view(torch.uint8)  # torch copies not every dtype
    piece = memory[start * dtype.itemsize : (start + count) * dtype.itemsize]
    return piece.clone().view(dtype).reshape(shape)
