from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from mmdb.errors import InvalidOption
from mmdb.plan.cluster import hop_s, local_link, measured_cluster, read_row_s
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.profile.measurements import (
    KINDS,
    Machine,
    Measurement,
    Stamp,
    Versions,
    assumed_rows,
    measurement_of,
)

STAMP = Stamp(
    machine=Machine(node="a", cpu="x", capability="AVX2", cores=4, memory_bytes=1 << 33),
    versions=Versions(torch="2.5", python="3.11.2", engine="duckdb"),
    measured_at=datetime(2025, 3, 1, tzinfo=UTC),
)
ROWS = [
    *(Measurement(kind="product", size=x, value=(x + 1e5) / 5e10) for x in (1e4, 1e6, 1e8)),
    *(
        Measurement(kind="busy_step", size=c, value=s)
        for c, s in ((1, 1e-3), (2, 1.1e-3), (4, 1.5e-3))
    ),
    *(Measurement(kind="all_reduce_2", size=x, value=4e-4 + x / 5e8) for x in (256, 1e5, 1e7)),
    *(Measurement(kind="all_reduce_4", size=x, value=8e-4 + x / 3e8) for x in (256, 1e5, 1e7)),
]


def test_without_a_measurement_all_is_assumed_and_says_so() -> None:
    profile = profile_of([], STAMP)
    assert profile.assumed == KINDS.keys() and profile.stamp is None
    assert "calibrate" in profile.warnings[0] and "assumed" in profile.warnings[0]
    assert measured_cluster(profile).nodes[0].slots == 2


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.fit != "none"])
def test_every_kind_has_a_default_that_grows(kind: str) -> None:
    assert all(row.assumed and row.kind == kind for row in assumed_rows(kind))
    profile = profile_of([])
    if KINDS[kind].fit == "slowdown":
        assert profile.slowdowns[kind].upto(4)[-1] > 1
    else:
        assert 0 < profile.seconds(kind, 1.0) <= profile.seconds(kind, 1e8)


def test_measured_kinds_are_fitted_and_the_others_named() -> None:
    profile = profile_of(ROWS, STAMP)
    assert profile.seconds("product", 1e9) == pytest.approx(1e9 / 5e10, rel=1e-3)
    assert profile.slowdown(4) == pytest.approx((1.0, 1.1, 1.3, 1.5))
    assert "product" not in profile.assumed and "copy" in profile.assumed
    assert "copy" in profile.warnings[0]


def test_assumed_rows_that_were_stored_do_not_count_as_measured() -> None:
    assert profile_of(assumed_rows("product"), STAMP).stamp is None


def test_a_cluster_has_the_machine_that_was_measured() -> None:
    cluster = measured_cluster(profile_of(ROWS, STAMP), ["a", "b"])
    assert [node.name for node in cluster.nodes] == ["a", "b"]
    assert cluster.nodes[0].slots == 4 and cluster.nodes[0].memory_bytes < 1 << 33
    assert cluster.nodes[0].slowdown == pytest.approx((1.0, 1.1, 1.3, 1.5))
    assert not cluster.simulated


def test_the_link_gives_back_the_measured_sums() -> None:
    profile = profile_of(ROWS, STAMP)
    link, start_s = local_link(profile)
    small_s = profile.seconds("all_reduce_2", 256.0)
    assert start_s + 2 * link.latency_s == pytest.approx(small_s)
    assert link.bytes_per_s == pytest.approx(5e8, rel=0.3)
    assert start_s >= 0 and link.latency_s >= 0


def test_costs_of_hops_and_rows_are_positive() -> None:
    for profile in (profile_of([]), profile_of(ROWS, STAMP)):
        assert hop_s(profile) > 0
        assert read_row_s(profile, 100.0) < read_row_s(profile, 1e5)
        assert read_row_s(profile, 784.0, pixels=True) > 0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind} {row.size:g}")
def test_a_row_survives_json(row: Measurement) -> None:
    assert measurement_of(json.loads(json.dumps(row.to_json()))) == row


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "nothing"},
        {"kind": None},
        {"size": -1},
        {"value": 0},
        {"value": "fast"},
        {"value": math.nan},
        {"value": math.inf},
        {"deviation": -0.1},
        {"samples": -3},
    ],
)
def test_an_impossible_row_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="no row of a profile"):
        measurement_of(ROWS[0].to_json() | change)


def test_a_row_that_lacks_its_value_is_refused() -> None:
    with pytest.raises(InvalidOption):
        measurement_of({"kind": "product", "size": 1})
