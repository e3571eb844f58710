from __future__ import annotations

import random

import pytest

from tests.unit.graph.transfer.carried import carry, relative_error, trained
from tests.unit.graph.transfer.pairs import CASES, FAMILIES, random_pair

LIMIT = 1e-6


@pytest.mark.parametrize(("family", "how"), CASES)
def test_a_child_that_has_grown_computes_what_its_parent_does(family: str, how: str) -> None:
    pair = random_pair(family, how, 0)
    parent, child = trained(pair.parent), trained(pair.child, seed=1)
    made = carry(child, parent, pair.inputs)
    assert made.exact, made.reasons
    assert relative_error(child, parent, pair.inputs) <= LIMIT


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_called_exact_is(family: str, seed: int) -> None:
    """Of any two networks of a kind, larger and smaller, with some layers paired wrongly."""
    rng = random.Random(f"{family} {seed}")
    one, other = (random_pair(family, "all", rng.randint(0, 99)) for _ in range(2))
    if one.inputs.shape != other.inputs.shape:
        return
    parent = trained(rng.choice((one.parent, one.child)), seed)
    child = trained(rng.choice((other.parent, other.child)), seed + 1)
    paths = [path for path, _ in child.named_modules()]
    names = {path: rng.choice(paths) for path in paths if rng.random() < 0.1}
    made = carry(child, parent, one.inputs, names=names, seed=seed)
    assert not made.exact or relative_error(child, parent, one.inputs) <= LIMIT
