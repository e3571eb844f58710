from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.graph.match.alignment import align
from mmdb.graph.match.layer_orders import START, Orders, orders_of
from mmdb.graph.match.pack import BranchPart, ParallelBranches, pack
from mmdb.graph.ops.skeleton import ADD, CONCAT, UNREAD, LayerSkeleton
from tests.unit.graph.match.outlines import QUICK, outline, outlines, renumbered

CONV, LINEAR, NORM = ("conv2d", (8, 8, 3, 3)), ("linear", (8, 8)), ("batch_norm", (8,))


def paths(orders: Orders) -> list[list[int]]:
    """Return every order that the rows spell."""
    found: dict[int, list[list[int]]] = {START: [[]]}
    for row, layer in enumerate(orders.layer.tolist()):
        sources = orders.sources[orders.first[row] : orders.first[row + 1]].tolist()
        found[row] = [[*path, layer] for source in sources for path in found[source]]
    return [path for end in orders.ends.tolist() for path in found[end]]


@QUICK
@given(outlines())
def test_every_order_has_each_layer_once_after_what_it_reads(found: LayerSkeleton) -> None:
    packed = pack(found)
    orders = paths(orders_of(packed))
    assert packed.order.tolist() in orders
    assert len({tuple(order) for order in orders}) == len(orders)
    for order in orders:
        assert sorted(order) == list(range(len(found.layers)))
        place = {layer: rank for rank, layer in enumerate(order)}
        for number, reads in enumerate(found.inputs):
            assert all(place[read] < place[number] for read in reads if read >= 0)


@QUICK
@given(outlines(), st.integers(0, 999))
def test_the_canonical_order_spells_the_same_layers_however_they_are_numbered(
    found: LayerSkeleton, seed: int
) -> None:
    def spelt(given: LayerSkeleton) -> list[tuple[str, tuple[int, ...]]]:
        layers = [given.layers[number] for number in pack(given).order]
        return [(layer.kind, layer.shape) for layer in layers]

    assert spelt(renumbered(found, seed)) == spelt(found)


def test_a_branch_stays_in_one_piece_and_what_is_shared_comes_first() -> None:
    found = outline(
        (*CONV, []),  # 0
        (*NORM, [0]),  # 1: the shortcut
        (*CONV, [0]),  # 2
        (*LINEAR, [2]),  # 3
        (ADD, (), [1, 3]),  # 4
    )
    root = pack(found).branches
    (branches,) = [item for item in root.items if isinstance(item, ParallelBranches)]
    assert [list(part) for part in branches.parts] == [[2, 3], [1]]
    assert sorted(paths(orders_of(pack(found)))) == [[0, 1, 2, 3, 4], [0, 2, 3, 1, 4]]


def test_arguments_of_a_concatenation_keep_their_order() -> None:
    found = outline((*CONV, []), (*NORM, [0]), (*LINEAR, [0]), (CONCAT, (), [2, 1]))
    assert paths(orders_of(pack(found))) == [[0, 2, 1, 3]]


def test_layers_that_nothing_reads_or_feeds_come_last_and_make_no_branches() -> None:
    chain = [(*CONV, [number + 1] if number else []) for number in range(9)]
    found = outline((UNREAD, (3,), []), (UNREAD, (9, 9), []), *chain)
    assert paths(orders_of(pack(found))) == [[2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1]]
    assert align(pack(outline((UNREAD, (9, 9), []))), pack(found)).score > 0


def test_alike_branches_are_written_once() -> None:
    found = outline((*CONV, []), (*NORM, [0]), (*NORM, [0]), (ADD, (), [2, 1]))
    assert paths(orders_of(pack(found))) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("terms", [3, 40, 600])
def test_long_sums_do_not_multiply_rows_nor_nest_too_deep(terms: int) -> None:
    rows: list[tuple[str, tuple[int, ...], list[int]]] = [("conv2d", (8, 3, 3, 3), [])]
    total = 0
    for term in range(terms):
        rows.append(("linear", (8, 1 + term), [0]))
        rows.append((ADD, (), [total, len(rows) - 1]))
        total = len(rows) - 1
    packed = pack(outline(*rows))
    assert len(packed) <= len(orders_of(packed).layer) <= 8 * len(packed)


def test_a_deep_chain_and_deeply_nested_concatenations_are_no_trouble() -> None:
    chain = outline(*((*CONV, [number - 1] if number else []) for number in range(3000)))
    assert pack(chain).order.tolist() == list(range(3000))
    down = [(*CONV, [number - 1] if number else []) for number in range(700)]
    up = [(CONCAT, (), [698 + step, 699 - step]) for step in range(1, 700)]
    assert pack(outline(*down, *up)).order.tolist() == list(range(1399))


def test_slots_are_used_again() -> None:
    found = outline(*((*CONV, [number - 1] if number else []) for number in range(50)))
    assert orders_of(pack(found)).slots == 3


@QUICK
@given(outlines())
def test_a_row_keeps_its_slot_until_it_is_read_for_the_last_time(found: LayerSkeleton) -> None:
    orders = orders_of(pack(found))
    holds = {0: START}
    for row, slot in enumerate(orders.slot.tolist()):
        for source in orders.sources[orders.first[row] : orders.first[row + 1]].tolist():
            of = 0 if source == START else int(orders.slot[source])
            assert holds[of] == source
            assert of != slot
        holds[slot] = row
    for end in orders.ends.tolist():
        assert holds[0 if end == START else int(orders.slot[end])] == end


def test_a_part_yields_its_branches_one_after_the_other() -> None:
    inner = ParallelBranches([BranchPart([3]), BranchPart([4, 5])], True)
    assert list(
        BranchPart([1, ParallelBranches([BranchPart([2, inner]), BranchPart([6])], True), 7])
    ) == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]
