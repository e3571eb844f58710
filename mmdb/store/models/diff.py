"""In which tensors two models differ, and how far."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import NotReplayable
from mmdb.store.models.model_rows import SavedModel, find_model
from mmdb.store.models.recover import ModelReader
from mmdb.store.tensors.tensor_bytes import dtype_name, raw_bytes

_Q = load("diff")
#: Elements that are compared in one step: their float64 copies stay in the processor's cache.
_STEP = 1 << 17
_LOW = 2**32 - 1
#: Bytes of changed tensors that are read from each model in one go.
_READ_BYTES = 64 << 20

Recover = Callable[[Connection, SavedModel], Mapping[str, torch.Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDifference:
    """A path at which two models have not the same tensor."""

    path: str
    change: str  # "added", "removed", "changed"
    dtype: str  # of the second model, or of the first for what is removed; shape likewise
    shape: tuple[int, ...]
    l2: float | None = None  # Euclidean norm of second minus first, where dtype and shape agree
    max_abs: float | None = None  # largest absolute difference


def model_diff(
    connection: Connection,
    a: str,
    b: str,
    *,
    norms: bool = True,
    recover: Recover | None = None,
) -> list[TensorDifference]:
    """Return what changed from model `a` to model `b`, in the order of the state dict of `b`.

    Tensors are equal where their bytes are; -0.0 differs from 0.0 with both norms 0. What only
    one of them has comes without norms, as do tensors whose dtype or shape changed.

    Args:
        norms: False reads no tensor of models that are kept by their tensors.
        recover: makes the tensors of a model that is kept as a recipe.
    Raises:
        ModelNotFound
        NotReplayable: one of them is kept as a recipe, and there is no `recover`.
    """
    old, new = find_model(connection, a), find_model(connection, b)
    for model in (old, new):
        if model.manifest_id is None:
            if recover is None:
                raise NotReplayable(
                    f"Model {model.reference!r} is kept as a recipe and has no tensors to compare."
                )
            return compare(recover(connection, old), recover(connection, new), norms=norms)
    rows = connection.rows(_Q.diff_models, a=old.model_id, b=new.model_id)
    found = {
        row["path"]: TensorDifference(
            path=row["path"],
            change=row["change"],
            dtype=row["dtype"],
            shape=tuple(row["shape"]),
        )
        for row in rows
    }
    if norms:
        sizes = [
            (row["path"], row["byte_count"])
            for row in rows
            if row["change"] == "changed"
            and (row["dtype"], row["shape"]) == (row["old_dtype"], row["old_shape"])
        ]
        _measure(connection, (old, new), sizes, found)
    return list(found.values())


def compare(
    old: Mapping[str, torch.Tensor], new: Mapping[str, torch.Tensor], *, norms: bool = True
) -> list[TensorDifference]:
    """Return what changed from one set of tensors to another; see `model_diff`."""
    found = []
    for path in [*new, *(path for path in old if path not in new)]:
        before, after = old.get(path), new.get(path)
        if before is None or after is None:
            only = before if after is None else after
            assert only is not None
            found.append(_difference(path, "removed" if after is None else "added", only))
        elif (before.dtype, before.shape) != (after.dtype, after.shape):
            found.append(_difference(path, "changed", after))
        elif not np.array_equal(raw_bytes(before), raw_bytes(after)):
            l2, max_abs = distance(before, after) if norms else (None, None)
            change = _difference(path, "changed", after)
            found.append(replace(change, l2=l2, max_abs=max_abs))
    return found


def _difference(path: str, change: str, tensor: torch.Tensor) -> TensorDifference:
    dtype = dtype_name(tensor.dtype)
    return TensorDifference(path=path, change=change, dtype=dtype, shape=tuple(tensor.shape))


def _measure(
    connection: Connection,
    models: tuple[SavedModel, SavedModel],
    sizes: Sequence[tuple[str, int]],
    found: dict[str, TensorDifference],
) -> None:
    """Put the norms of changed tensors into `found`."""
    reader = ModelReader(connection)
    for paths in _groups(sizes):
        old, new = (reader.tensors(model, paths) for model in models)
        for path in paths:
            l2, max_abs = distance(old[path], new[path])
            found[path] = replace(found[path], l2=l2, max_abs=max_abs)


def _groups(sizes: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Yield paths whose tensors are read together."""
    group: list[str] = []
    total = 0
    for path, size in sizes:
        if group and total + size > _READ_BYTES:
            yield group
            group, total = [], 0
        group.append(path)
        total += size
    if group:
        yield group


def distance(old: torch.Tensor, new: torch.Tensor) -> tuple[float, float] | tuple[None, None]:
    """Return the Euclidean norm and the largest absolute value of `new` minus `old`.

    Args:
        old, new: of one dtype and shape; compared in float64, complex numbers by their modulus.
    Returns:
        NaN where an element of either is NaN; None where torch cannot compute with the dtype.
    """
    squares = largest = 0.0
    before, after = old.reshape(-1), new.reshape(-1)
    try:
        for start in range(0, before.numel(), _STEP):
            part = slice(start, start + _STEP)
            size = _apart(before[part], after[part]).abs()
            squares += float(torch.dot(size, size))
            top = float(size.max())
            if math.isnan(top):
                return math.nan, math.nan
            largest = max(largest, top)
    except (RuntimeError, NotImplementedError):  # a dtype that torch only stores
        return None, None
    return math.sqrt(squares), largest


def _apart(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    if old.dtype == torch.uint64:  # as signed numbers that are as far apart
        old, new = (values.view(torch.int64) ^ -(2**63) for values in (old, new))
    if old.dtype == torch.int64:  # in halves, which float64 holds
        high, low = (new >> 32) - (old >> 32), (new & _LOW) - (old & _LOW)
        return high.double() * 2.0**32 + low
    wide = torch.complex128 if old.is_complex() else torch.float64
    return new.to(wide) - old.to(wide)
