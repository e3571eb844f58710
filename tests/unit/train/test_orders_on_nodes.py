"""What a driver tells a worker of a cluster's node, and what becomes of it on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmdb.errors import InvalidOption
from mmdb.train.hops.orders import (
    FusedOrder,
    GroupOrder,
    HopOrder,
    MergeOrder,
    driver_order,
    from_json,
    to_json,
)
from mmdb.train.values.spec import Past, WorkerGroup

ORDER = HopOrder(
    part_id=3,
    candidate_id=7,
    epoch=1,
    publish=False,
    past=Past(epoch=1, part_ids=(5, 4)),
    holders=(99, 7),
    at=8,
    useless=((7, "00ff"),),
)


def test_a_past_grows_by_the_hops_of_an_epoch() -> None:
    past = Past().after(0, 5).after(0, 4)
    assert past == Past(epoch=0, part_ids=(5, 4))
    assert past.after(1, 4) == Past(epoch=1, part_ids=(4,))


def test_an_order_is_the_same_on_the_node() -> None:
    assert driver_order(json.loads(to_json(ORDER))) == ORDER
    assert from_json(to_json(ORDER)) == ORDER


def test_a_merge_is_the_same_on_the_node() -> None:
    order = MergeOrder(part_id=3, candidate_id=7, epoch=1)
    assert driver_order(json.loads(to_json(order))) == order


@pytest.mark.parametrize(
    "order",
    [
        FusedOrder(part_id=3, candidate_ids=(7, 8), epoch=1, pasts=(None, Past()), holders=(9,)),
        GroupOrder(
            part_ids=(3, 4),
            candidate_id=7,
            epoch=1,
            group=WorkerGroup(name="g", rank=1, size=2, host="127.0.0.1", port=99, timeout_s=5.0),
            past=Past(epoch=1, part_ids=(5,)),
            holders=(99, 7),
            at=8,
        ),
    ],
)
def test_orders_of_several_are_the_same_on_the_node(order: FusedOrder | GroupOrder) -> None:
    assert driver_order(json.loads(to_json(order))) == order
    assert from_json(to_json(order)) == order


def test_no_group_sends_a_node_to_another_machine() -> None:
    group = WorkerGroup(name="g", rank=1, size=2, host="10.0.0.1", port=99, timeout_s=5.0)
    order = GroupOrder(part_ids=(3, 4), candidate_id=7, epoch=1, group=group)
    with pytest.raises(InvalidOption, match="no place in a group"):
        driver_order(json.loads(to_json(order)))


def test_an_order_without_a_past_is_one_of_a_driver_that_lost_a_hop() -> None:
    order = HopOrder(part_id=3, candidate_id=7, epoch=1)
    assert driver_order(json.loads(to_json(order))) == order


@pytest.mark.parametrize(
    "change",
    [
        {"part_id": "3"},
        {"candidate_id": None},
        {"epoch": 1.5},
        {"past": 3},
        {"past": {"epoch": 1}},
        {"past": {"epoch": 1, "part_ids": ["x"]}},
        {"holders": "me"},
        {"at": "here"},
        {"useless": [7]},
        {"useless": [[7, "../x"]]},
    ],
)
def test_what_no_driver_writes_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="not the order"):
        driver_order(json.loads(to_json(ORDER)) | change)
