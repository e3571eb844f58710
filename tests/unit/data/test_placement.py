"""Partitions over nodes: even for a dataset, and on shards of their own as far as there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from random import Random

import pytest

from mmdb.data.registration import Number, choose

SHARDS = 32


def drawing(
    nodes: int, seed: int, numbers: int
) -> tuple[Callable[[], Sequence[Number]], list[Number]]:
    """Return a draw of numbers whose shards are random, as a hash of them is, and all it drew."""
    random, ids, drawn = Random(seed), count(1), []

    def draw() -> Sequence[Number]:
        shards = [random.randrange(SHARDS) for _ in range(numbers)]
        new = [Number(next(ids), f"node{shard % nodes}", shard) for shard in shards]
        drawn.extend(new)
        return new

    return draw, drawn


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("nodes", "partitions"), [(2, 5), (4, 5), (4, 17), (32, 33), (1, 3)])
def test_no_node_has_two_more_than_another(nodes: int, partitions: int, seed: int) -> None:
    draw, drawn = drawing(nodes, seed, 8 * partitions)
    chosen = choose(partitions, {f"node{n}" for n in range(nodes)}, draw)
    place = {number.part_id: number for number in drawn}
    assert len(set(chosen)) == partitions
    for first in range(1, partitions + 1):
        on_node = Counter(place[part_id].node for part_id in chosen[:first])
        assert max(on_node.values()) - min(on_node[f"node{n}"] for n in range(nodes)) <= 1


def test_partitions_of_one_node_lie_on_different_shards() -> None:
    draw, drawn = drawing(2, 0, 64)
    chosen = choose(8, {"node0", "node1"}, draw)
    place = {number.part_id: number for number in drawn}
    assert len({place[part_id].shard for part_id in chosen}) == 8


def test_numbers_are_drawn_again_until_every_node_has_its_share() -> None:
    rounds = iter([[Number(1, "a", 0), Number(2, "a", 1)], [Number(3, "b", 2)]])
    assert choose(2, {"a", "b"}, lambda: next(rounds)) == [1, 3]


def test_small_datasets_do_not_all_begin_on_one_node() -> None:
    firsts = set()
    for seed in range(20):
        draw, drawn = drawing(2, seed, 8)
        (chosen,) = choose(1, {"node0", "node1"}, draw)
        firsts |= {number.node for number in drawn if number.part_id == chosen}
    assert firsts == {"node0", "node1"}


@pytest.mark.parametrize("seed", range(20))
def test_partitions_lie_where_they_had_better_as_far_as_that_is_even(seed: int) -> None:
    draw, drawn = drawing(4, seed, 16)
    nodes = {f"node{n}" for n in range(4)}
    before = choose(11, nodes, draw)
    near = [next(one.node for one in drawn if one.part_id == part_id) for part_id in before]
    chosen = choose(13, nodes, draw, [*near, "", "gone"])
    place = {number.part_id: number for number in drawn}
    assert [place[part_id].node for part_id in chosen[:11]] == near
    chosen = choose(10, nodes, draw, near[:3] + near[4:])  # one is gone: evenness comes first
    place = {number.part_id: number for number in drawn}
    on_node = Counter(place[part_id].node for part_id in chosen)
    assert max(on_node.values()) - min(on_node[node] for node in nodes) <= 1
    assert not {*before} & {*chosen}
