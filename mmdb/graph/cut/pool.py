"""Pools: what becomes of the outputs at a cut before they are kept as features."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.fx.proxy import Proxy

from mmdb.errors import HeadMismatch, NotACut
from mmdb.messages import show

#: What a configuration may say; "auto" is resolved before anything is computed.
POOLS = ("auto", "mean", "flatten", "none")
_FEATURES = "Freeze up to a module that returns one tensor of float32: a row for each of its input."


def resolve_pool(pool: str, shape: Sequence[int], *, has_head: bool) -> str:
    """Return the pool that is meant: "mean", "flatten" or "none".

    Args:
        pool: one of POOLS.
        shape: of one row's output at the cut.
        has_head: whether a head of its own reads the features; the rest of a network needs them
            as they are.
    Raises:
        HeadMismatch: there is no such pool, or the rest of the network cannot read what it gives.
    """
    if pool not in POOLS:
        raise HeadMismatch(
            f"there is no pool {show(pool)}", hint=f"pool is one of {', '.join(POOLS)}."
        )
    if not has_head and pool not in ("auto", "none"):
        raise HeadMismatch(
            f"pool {pool!r} needs a head: the rest of the network reads outputs as they are",
            hint="Give a head, such as 'linear', or leave the pool out.",
        )
    if pool == "auto":
        return "mean" if has_head and len(shape) > 1 else "none"
    return "none" if pool == "mean" and len(shape) < 2 else pool


def pooled_shape(pool: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of one row's features.

    Args:
        pool: as `resolve_pool` returns it.
        shape: of one row's output at the cut. (c, h, w) and deeper are maps, (t, d) is a sequence.

    >>> pooled_shape("mean", (64, 8, 8)), pooled_shape("mean", (9, 32)), pooled_shape("none", (9,))
    ((64,), (32,), (9,))
    """
    if pool == "flatten":
        return (math.prod(shape),)
    if pool == "mean" and len(shape) > 1:
        return (shape[1],) if len(shape) == 2 else (shape[0],)
    return tuple(shape)


class Pool(nn.Module):
    """Features from the outputs at a cut: (n, *shape) -> (n, *pooled_shape(pool, shape)).

    Args:
        where: path of the cut, for errors.
        rank: dimensions of one row, where they are known: a trace cannot ask for them.
        copies: whether what follows may change the outputs in place.
    """

    def __init__(
        self, pool: str, where: str, *, rank: int | None = None, copies: bool = False
    ) -> None:
        super().__init__()
        self.pool, self.where, self.rank, self.copies = pool, where, rank, copies

    def forward(self, x: Tensor) -> Tensor:
        """Return the features, contiguous and in memory of their own where `copies` says so.

        Raises:
            NotACut: x is no float32 tensor with a row for each of a batch.
        """
        if issubclass(type(x), Proxy):  # a trace
            return self._pooled(x, self.rank)
        _check(x, self.where)
        pooled = self._pooled(x, x.ndim - 1)
        is_own = self.pool == "mean" and x.ndim > 2
        return pooled.clone() if self.copies and not is_own else pooled.contiguous()

    def _pooled(self, x: Tensor, rank: int | None) -> Tensor:
        if self.pool == "flatten":
            return x.flatten(1)
        if self.pool == "none" or (rank is not None and rank < 2):
            return x
        if rank is None:
            raise ValueError("the outputs' rank is not known in a trace")
        return x.mean(dim=1) if rank == 2 else x.mean(dim=tuple(range(2, rank + 1)))


def _check(x: object, where: str) -> None:
    if not isinstance(x, Tensor):
        raise NotACut(
            f"{where} returns a {type(x).__name__}, and features are one tensor",
            hint=_FEATURES,
        )
    if x.dtype != torch.float32:
        raise NotACut(f"{where} returns {x.dtype}, and features are float32", hint=_FEATURES)
    if x.ndim < 2:
        shape = tuple(x.shape)
        raise NotACut(f"{where} returns shape {shape}: no features for each row", hint=_FEATURES)
