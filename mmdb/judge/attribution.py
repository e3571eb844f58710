"""Contributions of columns to a model's answer: Shapley values, and integrated gradients.

Columns are given by their places in the rows' arrays. An answer is one number a row: that output of
the model, such as the probability of a class, which is asked for of this row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mmdb.errors import InvalidInput
from mmdb.graph.tabular import WordsInput

#: By input; one of the name "" where there is but one.
Arrays = Mapping[str, Tensor]
#: Returns the answer for each row, (n,), of the outputs that are asked for, int64 (n,).
Answer = Callable[[Arrays, Tensor], Tensor]

#: Points of an integral: rows whose sum is off by more than `GAP` get the next number of them.
STEPS = (8, 32, 128, 512, 2048)
#: Share of an answer's difference that the columns' sum may be off.
GAP = 0.01
#: Rows times points that go through the model at once.
_ROWS_AT_ONCE = 4096
#: Columns of which every set is tried.
MOST_EXACT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a column in the rows' arrays."""

    input: str
    span: slice  # of the flattened row
    codes: int | None = None  # how many there are, where its numbers are codes


class Attribution(NamedTuple):
    """The contributions of columns to the answers for some rows."""

    added: np.ndarray  # float64 (n, columns)
    answer: np.ndarray  # float64 (n,)
    gap: np.ndarray  # what the sum is off, float64 (n,)


def shapley(
    answer: Answer, x: Arrays, asked: Tensor, base: Arrays, places: Sequence[Place]
) -> Attribution:
    """Return the Shapley values of the columns, those left out being as in `base`.

    Args:
        asked: which output of each row. base: one row, (1, ...).
    Raises:
        InvalidInput: there are more than `MOST_EXACT` columns.
    Source: Shapley 1953; Sundararajan and Najmi, ICML 2020 (baseline Shapley).
    """
    count = len(places)
    if count > MOST_EXACT:
        raise InvalidInput(
            f"There are {count} columns; of {MOST_EXACT} at most every set can be tried.",
            hint="Leave method out, or pass 'gradients'.",
        )
    with torch.no_grad():
        found = [
            answer(_mixed(x, base, [p for k, p in enumerate(places) if some >> k & 1]), asked)
            for some in range(1 << count)
        ]
    by_set = torch.stack(found).double().numpy()
    added = np.zeros((by_set.shape[1], count))
    sizes = np.array([some.bit_count() for some in range(1 << count)])
    shares = [
        math.factorial(s) * math.factorial(count - s - 1) / math.factorial(count)
        for s in range(count)
    ]
    for k in range(count):
        without = np.flatnonzero(~np.arange(1 << count) >> k & 1)
        weight = np.array(shares)[sizes[without]]
        added[:, k] = weight @ (by_set[without | 1 << k] - by_set[without])
    off = added.sum(1) - (by_set[-1] - by_set[0])
    return Attribution(added, by_set[-1], np.abs(off))


def _mixed(x: Arrays, base: Arrays, places: Sequence[Place]) -> Arrays:
    """Return rows that are as in `x` at some places, and elsewhere as the row of `base`."""
    mixed = {name: base[name].expand_as(rows).clone() for name, rows in x.items()}
    for place in places:
        flat = mixed[place.input].flatten(1)
        flat[:, place.span] = x[place.input].flatten(1)[:, place.span]
        mixed[place.input] = flat.reshape(x[place.input].shape)
    return mixed


def integrated_gradients(
    answer: Answer,
    module: nn.Module,
    x: Arrays,
    asked: Tensor,
    base: Arrays,
    places: Sequence[Place],
    steps: Sequence[int] = STEPS,
) -> Attribution:
    """Return the integral of the answer's gradient on the way from `base` to each row, by column.

    Numbers go straight there; codes by what `module` embeds them as. Rows whose sum misses the
    difference of their answers by more than `GAP` are done again with more points.

    Args:
        asked: which output of each row. base: one row, (1, ...).
        steps: points, of which there are more each time.
    Raises:
        InvalidInput: it cannot be told which column an embedding is of.
    Source: Sundararajan, Taly and Yan, ICML 2017; by the rule of Gauss and Legendre.
    """
    count = len(asked)
    owners = _owners(answer, module, base, places)
    with torch.no_grad():
        start, end = (answer(given, asked).double().numpy() for given in (_mixed(x, base, ()), x))
    added, left = np.zeros((count, len(places))), np.arange(count)
    for points in steps:
        size = max(_ROWS_AT_ONCE // points, 1)
        for rows in (left[at : at + size] for at in range(0, len(left), size)):
            part = {name: array[torch.from_numpy(rows)] for name, array in x.items()}
            of = asked[torch.from_numpy(rows)]
            added[rows] = _integral(answer, module, part, of, base, places, owners, points)
        off = np.abs(added.sum(1) - (end - start))
        left = np.flatnonzero(off > GAP * np.maximum(np.abs(end - start), 1e-6))
        if not len(left):
            break
    return Attribution(added, end, off)


def _integral(
    answer: Answer,
    module: nn.Module,
    x: Arrays,
    asked: Tensor,
    base: Arrays,
    places: Sequence[Place],
    owners: Sequence[int],
    points: int,
) -> np.ndarray:
    count = len(asked)
    shares, weights = (part.float().repeat_interleave(count) for part in _rule(points))
    ways, leaves = {}, {}
    for name, array in x.items():
        rows = array.repeat(points, *[1] * (array.ndim - 1))
        if array.is_floating_point():
            is_code = _codes(array, name, places)
            share = torch.where(is_code, 1.0, shares.reshape(-1, *[1] * (array.ndim - 1)))
            rows = leaves[name] = (base[name] + share * (rows - base[name])).requires_grad_()
        ways[name] = rows
    ends, starts = (_embedded(answer, module, arrays, asked) for arrays in (x, base))
    with _on_the_way(module, ends, starts, shares) as met:
        total = (answer(ways, asked.repeat(points)) * weights).sum()
    wanted = [*leaves.values(), *met]
    slopes = torch.autograd.grad(total, wanted, allow_unused=True)
    added = np.zeros((count, len(places)))
    for slope, name in zip(slopes, leaves, strict=False):
        if slope is not None:
            sums = slope.reshape(points, *x[name].shape).sum(0) * (x[name] - base[name])
            flat = torch.where(_codes(x[name], name, places), 0.0, sums).flatten(1).double()
            for k, place in enumerate(places):
                if place.input == name:
                    added[:, k] += flat[:, place.span].sum(1).numpy()
    for slope, owner, end, start in zip(slopes[len(leaves) :], owners, ends, starts, strict=True):
        if slope is not None:
            sums = slope.reshape(points, *end.shape).sum(0) * (end - start)
            added[:, owner] += sums.flatten(1).double().sum(1).numpy()
    return added


def _rule(points: int) -> tuple[Tensor, Tensor]:
    """Return points between 0 and 1, and their weights: Gauss and Legendre's, 64 at most a part."""
    at, weight = np.polynomial.legendre.leggauss(min(points, 64))
    parts = points // len(at)
    shares = (np.arange(parts)[:, None] + (at + 1) / 2) / parts
    return torch.from_numpy(shares.flatten()), torch.from_numpy(np.tile(weight / 2 / parts, parts))


def _codes(array: Tensor, name: str, places: Sequence[Place]) -> Tensor:
    """Return which numbers of a row are codes, bool (1, ...)."""
    flat = torch.zeros(1, math.prod(array.shape[1:]), dtype=torch.bool)
    for place in places:
        if place.input == name and place.codes is not None:
            flat[:, place.span] = True
    return flat.reshape(1, *array.shape[1:])


def _embeddings(module: nn.Module) -> list[nn.Module]:
    """Return the modules that take codes and return numbers."""
    if isinstance(module, nn.Embedding | nn.EmbeddingBag | WordsInput):
        return [module]
    return [one for child in module.children() for one in _embeddings(child)]


@contextmanager
def _hooked(module: nn.Module, hook: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Have a function see, and replace, what each call of an embedding returns."""
    handles = [
        one.register_forward_hook(lambda _, __, output: hook(output)) for one in _embeddings(module)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _embedded(answer: Answer, module: nn.Module, x: Arrays, asked: Tensor) -> list[Tensor]:
    """Return what each call of an embedding returns for some rows."""
    met: list[Tensor] = []
    with torch.no_grad(), _hooked(module, lambda output: met.append(output)):
        answer(x, asked[: len(next(iter(x.values())))])
    return met


@contextmanager
def _on_the_way(
    module: nn.Module, ends: Sequence[Tensor], starts: Sequence[Tensor], shares: Tensor
) -> Iterator[list[Tensor]]:
    """Have embeddings return what is between two of their outputs; yield these, as leaves."""
    met: list[Tensor] = []

    def replaced(_: Tensor) -> Tensor:
        end, start = ends[len(met)], starts[len(met)]
        share = shares.reshape(-1, *[1] * (end.ndim - 1))
        points = len(shares) // len(end)
        way = start + share * (end - start).repeat(points, *[1] * (end.ndim - 1))
        met.append(way.requires_grad_())
        return met[-1]

    with _hooked(module, replaced):
        yield met


def _owners(answer: Answer, module: nn.Module, base: Arrays, places: Sequence[Place]) -> list[int]:
    """Return for each call of an embedding which column it reads: whose other codes change it."""
    coded = [k for k, p in enumerate(places) if p.codes is not None]
    first = torch.zeros(1, dtype=torch.int64)
    before = _embedded(answer, module, base, first)
    owners = [set(coded) if len(coded) == 1 else set[int]() for _ in before]
    for k in coded if len(coded) > 1 else ():
        changed = {name: array.clone() for name, array in base.items()}
        array = changed[places[k].input]
        flat = array.flatten(1)
        flat[:, places[k].span] = (flat[:, places[k].span] + 1) % (places[k].codes or 1)
        changed[places[k].input] = flat.reshape(array.shape)
        after = _embedded(answer, module, changed, first)
        for owned, one, other in zip(owners, before, after, strict=True):
            if not torch.equal(one, other):
                owned.add(k)
    if any(len(owned) != 1 for owned in owners):
        raise InvalidInput(
            "Which columns an embedding of this model is of cannot be told.",
            hint=f"Pass method 'shapley', which takes {MOST_EXACT} columns at most.",
        )
    return [owned.pop() for owned in owners]
