from __future__ import annotations

from typing import Any

import pytest

from mmdb.errors import InvalidOption
from mmdb.plan.cost import EXECUTED
from mmdb.plan.ranking import KINDS
from mmdb.plan.run.wishes import Wishes, wishes_of


def test_nothing_asked_is_every_strategy_on_this_machine() -> None:
    assert wishes_of({}) == Wishes(strategies=KINDS)


def test_wishes_are_read() -> None:
    found = wishes_of(
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
    assert wishes_of({"strategies": "executed"}).strategies == EXECUTED


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
        wishes_of(raw)
