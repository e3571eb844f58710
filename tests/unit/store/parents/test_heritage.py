"""Who was made from whom, told by weights: trees that are known, and sums by plain loops."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mmdb.store.parents.heritage import (
    RELATED,
    Key,
    Sample,
    distance,
    sample_place,
    similarities,
    suggest_parents,
)

KEYS: list[Key] = [("0.weight", (48, 32)), ("2.weight", (40, 48))]


def drawn(random: np.random.Generator) -> Sample:
    """Return weights as torch begins with them: uniform, with light tails."""
    return {key: random.uniform(-0.2, 0.2, key[1]).astype(np.float32) for key in KEYS}


def tuned(random: np.random.Generator, parent: Sample) -> Sample:
    """Return weights after a training: a step with heavy tails, and one that all trainings make."""
    size = random.uniform(0.02, 0.05)
    drift = np.outer(np.ones(48), np.ones(48))
    return {
        key: (
            values
            + size * random.laplace(size=key[1])
            + 0.03 * random.random() * drift[: key[1][0], : key[1][1]]
        ).astype(np.float32)
        for key, values in parent.items()
    }


def forest(seed: int, roots: int = 3, size: int = 12) -> tuple[list[Sample], list[int | None]]:
    """Return the models of some random trees in random order, and the parent of each."""
    random = np.random.default_rng(seed)
    models: list[Sample] = []
    parents: list[int | None] = []
    for root in range(roots):
        models.append(drawn(random))
        parents.append(None)
        for k in range(size - 1):
            parent = root * size + int(random.integers(k + 1))
            models.append(tuned(random, models[parent]))
            parents.append(parent)
    order = random.permutation(len(models))
    place = np.argsort(order)
    found = [parents[k] for k in order]
    return [models[k] for k in order], [None if p is None else int(place[p]) for p in found]


@pytest.mark.parametrize("seed", range(8))
def test_a_forest_is_found(seed: int) -> None:
    models, parents = forest(seed)
    found = suggest_parents(models)
    assert [one.child for one in found] == list(range(len(models)))
    right = sum(one.parent == parents[one.child] for one in found)
    assert right >= 0.95 * len(models)
    assert all((one.similarity is None) == (one.parent is None) for one in found)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_stays_and_says_that_tails_grow_lighter(seed: int) -> None:
    random = np.random.default_rng(seed)
    first = {key: random.laplace(size=key[1]).astype(np.float32) for key in KEYS}
    models: list[Sample] = [first]
    parents: list[int | None] = [None]
    for k in range(1, 12):
        parents.append(int(random.integers(k)))
        step = models[parents[-1] or 0].items()
        models.append(
            {k: (v + 0.4 * random.normal(size=v.shape)).astype(np.float32) for k, v in step}
        )
    known = {k: p for k, p in enumerate(parents) if 0 < k < 5}
    found = {one.child: one.parent for one in suggest_parents(models, known)}
    assert found == {k: p for k, p in enumerate(parents) if k not in known}
    # What is not among the models is no parent here, and what is known is not asked again.
    alone = suggest_parents(models, dict.fromkeys(range(12)))
    assert alone == []


def test_trees_of_other_networks_are_none_of_its_own() -> None:
    random = np.random.default_rng(0)
    models = [drawn(random) for _ in range(6)]
    models.append({("other", (30, 30)): random.normal(size=(30, 30)).astype(np.float32)})
    assert all(one.parent is None for one in suggest_parents(models))
    assert suggest_parents([]) == []


def test_of_equal_models_the_older_one_is_the_parent() -> None:
    model = drawn(np.random.default_rng(1))
    first, second = suggest_parents([model, model])
    assert (first.parent, second.parent) == (None, 0)
    assert second.similarity == pytest.approx(1)


@pytest.mark.parametrize("seed", range(4))
def test_similarities_are_those_of_a_plain_loop(seed: int) -> None:
    models, _ = forest(seed, roots=2, size=4)
    models[3] = {KEYS[0]: models[3][KEYS[0]]}  # with another head
    found = similarities(models)
    for a, b in product(range(len(models)), repeat=2):
        dot = squares = 0.0
        for key in models[a].keys() & models[b].keys():
            x, y = (models[k][key] - models[k][key].mean(dtype=np.float64) for k in (a, b))
            dot, squares = dot + float((x * y).sum()), squares + float((x * x + y * y).sum())
        assert found[a, b] == pytest.approx(2 * dot / squares, abs=1e-9)
    unrelated = [found[a, b] for a, b in product(range(8), repeat=2) if a // 4 != b // 4]
    assert min(unrelated) < RELATED


def test_a_distance_leaves_out_the_two_largest_directions() -> None:
    random = np.random.default_rng(2)
    a, b = drawn(random), drawn(random)
    total = sum((np.linalg.svd(b[key] - a[key])[1][2:] ** 2).sum() for key in KEYS)
    count = sum(a[key].size for key in KEYS)
    assert distance(a, b, set(KEYS)) == pytest.approx(np.sqrt(total / count), rel=1e-4)
    small: Key = "w", (4, 9)
    few = {small: random.normal(size=(4, 9)).astype(np.float32)}
    none = {small: np.zeros((4, 9), np.float32)}
    assert distance(few, none, set(few)) == pytest.approx(
        np.sqrt((few[small] ** 2).mean()), rel=1e-4
    )


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (10, 100_000), (5000, 64), (64, 3, 7, 7)])
def test_a_sample_lies_within_its_weight_and_is_bounded(shape: tuple[int, ...]) -> None:
    first, last, columns = sample_place(("w", shape))
    assert 0 <= first < last <= shape[0]
    assert 0 < columns <= np.prod(shape[1:])
    assert (last - first) * columns <= 32_768
    assert sample_place(("w", shape)) == (first, last, columns)
