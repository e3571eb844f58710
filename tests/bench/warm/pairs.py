"""Parents and children of the three workloads, with the data of each and how they are trained."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import torch
from torch import nn

from mmdb.bench.workload import BenchShare
from tests.bench.warm import ensemble, language, nasbench
from tests.bench.warm.nuisance import CHILD, PARENT
from tests.bench.warm.pictures import digit_pictures, drawn_pictures
from tests.bench.warm.tasks import Pictures, Task, Text
from tests.bench.warm.training import Recipe

#: Seeds of the data: no two of these draw the same picture.
PARENT_DATA, CHILD_DATA, HELD_OUT_DATA = 1, 2, 3
TRAINING_PICTURES, HELD_OUT_PICTURES = 8_000, 500
#: Digits of the parent and of the child; the other 397 are held out.
DIGITS, DIGIT_COPIES = 700, 4
CORPUS_BYTES = 4_000_000

#: ModelKeeper's recipe (ray_tuner.py) for shorter runs. The rate, its 0.01 there, is the one of
#: 0.01, 0.02, 0.05, 0.1 and 0.2 from which cold trainings of other cells ended best, so that no
#: saving comes from a cold start that is too slow.
PICTURE_RECIPE = Recipe(steps=240, every=10, batch_size=32, lr=0.05, gentle=40)
DIGIT_RECIPE = Recipe(steps=240, every=10, batch_size=32, lr=0.05, gentle=40)
TEXT_RECIPE = Recipe(
    steps=320,
    every=16,
    batch_size=16,
    lr=2e-3,
    optimizer="adamw",
    weight_decay=0.01,
    warm_up=16,
    gentle=48,
)
#: A parent that read the same kind of text for as long would be as good as its child.
TEXT_PARENT_RECIPE = replace(TEXT_RECIPE, steps=192)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Network:
    """A network, its data and its training; name and data tell it from all others."""

    name: str
    data: str
    build: Callable[[], nn.Module]
    task: Task
    recipe: Recipe

    @property
    def key(self) -> str:
        """The text that names this network and no other."""
        return f"{self.data}: {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """A trained parent and a child that is to be trained on other data for the same task.

    Attributes:
        comparable: whether the parent can be scored on the child's data.
    """

    workload: str
    parent: Network
    child: Network
    comparable: bool = True

    @property
    def name(self) -> str:
        return f"{self.workload}, {self.child.data}: {self.parent.name} -> {self.child.name}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Data:
    """Disjoint data of parents and children for one task, scored on the same held-out data."""

    name: str
    parent: Task
    child: Task
    recipe: Recipe
    parent_recipe: Recipe

    def network(self, name: str, build: Callable[[], nn.Module], *, child: bool = True) -> Network:
        """Return a network that is trained on the child's data, or on the parent's."""
        task, recipe = (self.child, self.recipe) if child else (self.parent, self.parent_recipe)
        data = f"{self.name} of {'children' if child else 'parents'}"
        return Network(name=name, data=data, build=build, task=task, recipe=recipe)


def nas_pairs(share: BenchShare, parents: int = 15, seed: int = 0) -> Iterator[Pair]:
    """Yield three children for each random cell with C = 8, N = 1; every second cell on digits.

    The first child differs in one edge, the second in two; the third is wider or deeper, with a
    new operation on an edge or without.
    """
    draw = np.random.default_rng(seed)
    for ordinal in range(parents):
        cell = nasbench.random_cell(draw)
        first = nasbench.Architecture(cell)
        other = nasbench.mutate(cell, 1, draw)
        grown = (
            nasbench.widen(first, 12),
            nasbench.deepen(first, 2),
            nasbench.Architecture(other, channels=12),
            nasbench.widen(first, 10),
            nasbench.Architecture(other, cells=2),
        )
        children = [nasbench.Architecture(nasbench.mutate(cell, k, draw)) for k in (1, 2)]
        data = digit_data(share) if ordinal % 2 else drawn_data(share)
        parent = data.network(str(first), partial(nasbench.network, first), child=False)
        for child in (*children, grown[ordinal % len(grown)]):
            built = data.network(str(child), partial(nasbench.network, child))
            yield Pair(workload="nasbench", parent=parent, child=built)


def ensemble_pairs(share: BenchShare) -> Iterator[Pair]:
    """Yield a pair for each member but the first, which is the parent of all."""
    data, (first, *others) = drawn_data(share), ensemble.MEMBERS
    parent = data.network(str(first), partial(ensemble.network, first), child=False)
    for other in others:
        child = data.network(str(other), partial(ensemble.network, other))
        yield Pair(workload="ensemble", parent=parent, child=child)


#: Parent and child; heads of 16 channels unless the last of a pair says otherwise.
LANGUAGE_SHAPES = (
    (language.Shape(2, 48, 3), language.Shape(3, 48, 3)),
    (language.Shape(2, 48, 3), language.Shape(2, 64, 4)),
    (language.Shape(2, 48, 3), language.Shape(3, 64, 4)),
    (language.Shape(2, 48, 3), language.Shape(2, 96, 6)),
    (language.Shape(2, 64, 4), language.Shape(4, 64, 4)),
    (language.Shape(2, 64, 4), language.Shape(3, 80, 5)),
    (language.Shape(2, 64, 4), language.Shape(2, 80, 4)),
    (language.Shape(2, 64, 4), language.Shape(3, 96, 6)),
)


def language_pairs(share: BenchShare) -> Iterator[Pair]:
    """Yield a pair for each of LANGUAGE_SHAPES."""
    data = text_data(share)
    for small, large in LANGUAGE_SHAPES:
        parent = data.network(str(small), partial(language.network, small), child=False)
        child = data.network(str(large), partial(language.network, large))
        yield Pair(workload="language", parent=parent, child=child)


def settings(share: BenchShare) -> str:
    """Return a digest of what a training depends on beside the names of its networks."""
    sizes = (TRAINING_PICTURES, HELD_OUT_PICTURES, DIGITS, DIGIT_COPIES, CORPUS_BYTES)
    recipes = (PICTURE_RECIPE, DIGIT_RECIPE, TEXT_RECIPE, TEXT_PARENT_RECIPE)
    less = () if share.is_full else (share.share,)
    given = (recipes, sizes, PARENT, CHILD, torch.__version__, *less)
    return hashlib.sha256(repr(given).encode()).hexdigest()[:8]


WORKLOADS: dict[str, Callable[[BenchShare], Iterator[Pair]]] = {
    "nasbench": nas_pairs,
    "ensemble": ensemble_pairs,
    "language": language_pairs,
}


@cache
def drawn_data(share: BenchShare) -> Data:
    """Return drawn pictures; those of parent and child share no hue and no pattern."""
    count, held_out_count = share.of(TRAINING_PICTURES, 400), share.of(HELD_OUT_PICTURES, 100)
    held_out = drawn_pictures(held_out_count, HELD_OUT_DATA, CHILD)
    recipe = _shortened(PICTURE_RECIPE, share)
    parent, child = (
        Pictures(*drawn_pictures(count, seed, nuisance), *held_out)
        for seed, nuisance in ((PARENT_DATA, PARENT), (CHILD_DATA, CHILD))
    )
    return Data(
        name="drawn pictures",
        parent=parent,
        child=child,
        recipe=recipe,
        parent_recipe=recipe,
    )


@cache
def digit_data(share: BenchShare) -> Data:
    """Return handwritten digits: other ones for the parent, the child and the score."""
    held_out = digit_pictures(slice(2 * DIGITS, None), 1, HELD_OUT_DATA, CHILD)
    parent, child = (
        Pictures(*digit_pictures(rows, DIGIT_COPIES, seed, nuisance), *held_out)
        for rows, seed, nuisance in (
            (slice(DIGITS), PARENT_DATA, PARENT),
            (slice(DIGITS, 2 * DIGITS), CHILD_DATA, CHILD),
        )
    )
    recipe = _shortened(DIGIT_RECIPE, share)
    return Data(name="digits", parent=parent, child=child, recipe=recipe, parent_recipe=recipe)


@cache
def text_data(share: BenchShare, alphabet: str = language.ALPHABET) -> Data:
    """Return the standard library's sources: other files for the parent, the child, the score."""
    parts = language.corpus(share.of(CORPUS_BYTES, 200_000), alphabet)
    context = language.Shape(1, 1, 1).context
    parent, child = (Text(parts[part], parts["held_out"], context) for part in ("parent", "child"))
    return Data(
        name="standard library",
        parent=parent,
        child=child,
        recipe=_shortened(TEXT_RECIPE, share),
        parent_recipe=_shortened(TEXT_PARENT_RECIPE, share),
    )


def _shortened(recipe: Recipe, share: BenchShare) -> Recipe:
    """Return a recipe of fewer steps, which is scored twice or more often."""
    return replace(recipe, steps=recipe.every * share.of(recipe.steps // recipe.every, 2))
