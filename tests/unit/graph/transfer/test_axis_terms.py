from __future__ import annotations

import pytest

from mmdb.graph.transfer.axis_terms import (
    FIXED,
    ONE,
    PLACE,
    AxisSpace,
    Misfit,
    atom,
    concatenation,
    factor,
    find,
    join,
    leaves,
    mark,
    parts_of,
    product,
    split,
    unify,
)


def sizes(space: AxisSpace) -> list[int]:
    return [part.size for part in parts_of(space)]


def test_an_axis_of_size_one_ties_nothing() -> None:
    assert atom(1) is ONE and product((ONE, ONE)) is ONE
    mark(ONE, FIXED)
    assert not ONE.traits


def test_unified_atoms_are_one_and_share_traits() -> None:
    a, b, c = atom(4), atom(4, FIXED), atom(4)
    unify(a, b)
    unify(c, a)
    assert find(a) is find(b) is find(c) and find(c).traits == {FIXED}


def test_sizes_that_differ_do_not_unify() -> None:
    a, b = atom(4), atom(6)
    with pytest.raises(Misfit):
        unify(a, b)
    join(a, b)
    assert a.traits == b.traits == {FIXED}


def test_a_cut_atom_is_cut_for_everyone() -> None:
    a, b = atom(6), atom(6)
    unify(a, b)
    first, second = split(b, 2)
    assert sizes(a) == [2, 4] and parts_of(a)[0] is find(first)
    assert split(a, 2)[1] is find(second)


def test_concatenations_are_cut_to_common_parts() -> None:
    a, b = concatenation((atom(2), atom(4))), concatenation((atom(3), atom(3)))
    unify(a, b)
    assert sizes(a) == sizes(b) == [2, 1, 3]


def test_products_are_factored_to_common_factors() -> None:
    a, b = product((atom(2), atom(6))), product((atom(4), atom(3)))
    unify(a, b)
    assert sizes(a) == sizes(b) == [2, 2, 3]


def test_the_heads_of_a_packed_projection_share_their_parts() -> None:
    packed = atom(24)
    rest, size = factor(packed, 4)
    three, heads = factor(rest, 2)
    assert [part.size for part in (three, heads, size)] == [3, 2, 4]
    query, others = split(packed, 8)
    key, _ = split(others, 8)
    assert parts_of(query) == parts_of(key) == [find(heads), find(size)]


def test_halves_that_are_shuffled_are_one() -> None:
    a, b = atom(6), atom(6)
    both = concatenation((a, b))
    major, minor = factor(both, 6)
    assert major.size == 2 and find(a) is find(b) is find(minor)
    assert list(leaves(both)) == [find(a)]


def test_a_concatenation_of_products_is_a_product() -> None:
    minor = atom(4)
    both = concatenation((product((atom(2), minor)), product((atom(3), minor))))
    unify(both, product((atom(5), atom(4))))
    assert sizes(both) == [5, 4]


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_a_product_is_not_cut_inside_a_factor(cut: int) -> None:
    with pytest.raises(Misfit):
        split(product((atom(3), atom(2))), cut)


def test_places_are_not_cut() -> None:
    with pytest.raises(Misfit):
        split(atom(6, PLACE), 2)
