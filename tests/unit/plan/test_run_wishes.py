from __future__ import annotations

from typing import Any

import pytest

from mmdb.errors import InvalidOption
from mmdb.plan.cost import EXECUTED
from mmdb.plan.plan_options import PlanOptions, plan_options
from mmdb.plan.ranking import KINDS


def test_nothing_asked_is_every_strategy_on_this_machine() -> None:
    assert plan_options({}) == PlanOptions(strategies=KINDS)


def test_wishes_are_read() -> None:
    found = plan_options(
        {
            "cluster": {"nodes": 3},
            "objective": "worker_hours",
            "strategies": ["mop", "task"],
            "workers": 4,
            "batches": [None, 64],
            "partitions": [8],
            "bytes_limit": 1e9,
        }
    )
    assert found.strategies == ("mop", "task")
    assert found.batches == (None, 64) and found.partitions == (8,)
    assert found.workers == 4 and found.bytes_limit == 1e9
    assert plan_options({"strategies": "executed"}).strategies == EXECUTED


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"nodes": 3}, "no option 'nodes'"),
        ({"cluster": 3}, "cluster is 3"),
        ({"strategies": []}, "strategies is"),
        ({"strategies": ["mopp"]}, "no strategy 'mopp'"),
        ({"workers": True}, "workers is True"),
        ({"workers": 0}, "workers is 0"),
        ({"rows": 1.5}, "rows is 1.5"),
        ({"batches": 64}, "batches is 64"),
        ({"partitions": [0]}, "partitions is 0"),
        ({"bytes_limit": -1}, "bytes_limit is -1"),
        ({"bytes_limit": float("nan")}, "a number that is none"),
    ],
)
def test_what_cannot_be_is_refused(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        plan_options(raw)
