"""What the driver tells the workers of a group."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mmdb.errors import InvalidOption
from mmdb.train.drive.worker_pool import orders_of
from mmdb.train.hops.orders import GroupOrder, HopOrder
from mmdb.train.schedule import HopAssignment, ScheduledHop
from mmdb.train.values.seeds import VALIDATION
from mmdb.train.values.spec import WorkerGroup, group_of

PART_IDS = {0: 10, 1: 11, VALIDATION: 19}
JOB: Any = SimpleNamespace(
    hop_limit_s=None,
    begins_apart=lambda hop: False,
    candidate_id=lambda ordinal: 100 + ordinal,
    part_at=lambda worker: None,
    holders=(),
    run=SimpleNamespace(part_ids=PART_IDS, is_spread=False, workload=SimpleNamespace(merges=False)),
)


def meet(members: Sequence[str]) -> Sequence[WorkerGroup]:
    size = len(members)
    return [WorkerGroup(name="g", rank=k, size=size, host="h", port=1) for k in range(size)]


def orders(*group: tuple[str, int], job: Any = JOB, epoch: int = 3) -> list[Any]:
    hop = ScheduledHop(2, epoch, group[0][1])
    return list(orders_of(cast(Any, job), HopAssignment(group[0][0], hop, True, group), meet))


def test_each_member_of_a_round_is_told_all_its_partitions_and_its_own_rank() -> None:
    found = orders(("b", 1), ("a", 0))
    assert all(isinstance(order, GroupOrder) for order in found)
    assert [order.part_ids for order in found] == [(11, 10)] * 2
    assert [order.group.rank for order in found] == [0, 1]


@pytest.mark.parametrize("part", [1, VALIDATION])
def test_a_group_of_one_does_an_ordinary_hop(part: int) -> None:
    """So a validation is no training, and a lone partition is replayed as it was trained."""
    [order] = orders(("a", part))
    assert isinstance(order, HopOrder)
    assert order.part_id == PART_IDS[part]


def test_what_a_candidate_begins_with_is_settled_before_its_first_epoch() -> None:
    warm = SimpleNamespace(**(vars(JOB) | {"begins_apart": lambda hop: hop.epoch == 0}))
    groups = ((("a", 0),), (("b", 1), ("a", 0)))
    assert all(order.begins for one in groups for order in orders(*one, job=warm, epoch=0))
    assert not any(order.begins for one in groups for order in orders(*one, job=warm, epoch=1))
    assert not any(order.begins for one in groups for order in orders(*one, epoch=0))


PLACE = {"name": "g", "rank": 0, "size": 2, "host": "127.0.0.1", "port": 4000}


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "192.0.2.1"},
        {"host": "somewhere.example"},
        {"host": 7},
        {"port": 0},
        {"port": "x"},
        {"rank": 2},
        {"rank": None},
        {"backend": "mpi"},
        {"timeout_s": 1e9},
        {"else": 1},
    ],
)
def test_a_session_is_sent_nowhere_but_to_its_own_machine(wrong: dict[str, object]) -> None:
    assert group_of(PLACE).port == 4000
    with pytest.raises(InvalidOption, match="no place in a group") as raised:
        group_of(PLACE | wrong)
    assert raised.value.hint
