from __future__ import annotations

import random

import pytest
from torch import nn

from tests.bench.search.exactness import ALL_CASES, search
from tests.unit.graph.transfer.carried import carry, images, relative_error, rows, trained
from tests.unit.graph.transfer.pairs import CASES, FAMILIES, random_pair
from tests.unit.graph.transfer.sequences import Layers, grows_out_of, sequence

LIMIT = 1e-6


@pytest.mark.parametrize(("family", "how"), CASES)
def test_a_child_that_has_grown_computes_what_its_parent_does(family: str, how: str) -> None:
    pair = random_pair(family, how, 0)
    parent, child = trained(pair.parent), trained(pair.child, seed=1)
    made = carry(child, parent, pair.inputs)
    assert made.exact, made.reasons
    assert relative_error(child, parent, pair.inputs) <= LIMIT


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_called_exact_is(family: str) -> None:
    """Of any two networks of a kind, larger and smaller, with some layers paired wrongly."""
    rng = random.Random(family)
    compared = 0
    for seed in range(4):
        one, other = (random_pair(family, "all", rng.randint(0, 99)) for _ in range(2))
        while other.inputs.shape != one.inputs.shape:
            other = random_pair(family, "all", rng.randint(0, 99))
        parent = trained(rng.choice((one.parent, one.child)), seed)
        child = trained(rng.choice((other.parent, other.child)), seed + 1)
        paths = [path for path, _ in child.named_modules()]
        names = {path: rng.choice(paths) for path in paths if rng.random() < 0.1}
        made = carry(child, parent, one.inputs, names=names, seed=seed)
        assert made.exact or made.reasons
        assert not made.exact or relative_error(child, parent, one.inputs) <= LIMIT
        compared += 1
    assert compared == 4


#: What a layer that was put in can hand on, and what it cannot.
SEQUENCES: dict[str, tuple[Layers, Layers, bool]] = {
    "a layer put in before the head": ([48], [64, 64], True),
    "one layer more": ([48, 48], [64, 64, 64], True),
    "as wide as before": ([16], [16, 16], True),
    "the first is narrower": ([16], [15, 16], False),
    "much narrower": ([16], [12, 16], False),
    "narrower before all others": ([32, 32, 32], [16, 32, 32, 32], False),
    "narrower in the middle": ([8, 32], [8, 31, 32], True),
    "a narrow one between two layers": ([8, 2, 10], [14, 3, 3, 4, 27], True),
    "too narrow behind a wide one": ([2, 8], [5, 10, 5], False),
    "one is skipped for one that is wide enough": ([2, 8], [5, 10, 5, 18, 23], True),
}


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("kernel", [None, 1])
@pytest.mark.parametrize("case", SEQUENCES)
def test_layers_in_a_sequence_hand_on_all_or_the_child_is_not_exact(
    case: str, kernel: int | None, norm: bool
) -> None:
    widths, wider, is_exact = SEQUENCES[case]
    assert grows_out_of(wider, widths, is_idle=True) == is_exact

    def made(layers: Layers, seed: int) -> nn.Module:
        return trained(sequence(layers, norm=norm, bends="relu", kernel=kernel), seed)

    parent, child = made(widths, 0), made(wider, 1)
    inputs = rows(64) if kernel is None else images(8)
    carried = carry(child, parent, inputs)
    assert carried.exact == is_exact, carried.reasons
    assert (relative_error(child, parent, inputs) <= LIMIT) == is_exact


def test_a_head_stays_a_head_where_the_child_cannot_be_exact() -> None:
    parent = trained(sequence([48], norm=False, bends="gelu"))
    child = trained(sequence([64, 64], norm=False, bends="gelu"), 1)
    made = carry(child, parent, rows())
    origins = {origin.path: origin.parent for origin in made.origins}
    assert not made.exact and made.reasons
    assert origins["0.weight"] == "0.weight" and origins["4.weight"] == "2.weight"


def test_random_pairs_are_exact_or_not_called_so() -> None:
    claims, *others = search(seed=5, cases=len(ALL_CASES))
    assert claims.value >= len(CASES) - 2
    assert len(others) == 2 + len(FAMILIES)
    assert all(figure.holds for figure in others), others
