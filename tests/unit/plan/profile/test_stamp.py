from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mmdb.plan.profile.measurements import (
    Machine,
    Measurement,
    Stamp,
    Versions,
    drift,
    drifted,
    stale,
    stamp_here,
)

NOW = datetime(2025, 3, 1, tzinfo=UTC)
STAMP = Stamp(
    machine=Machine(node="a", cpu="x", capability="AVX2", cores=2, memory_bytes=1 << 33),
    versions=Versions(torch="2.5", python="3.11.2", engine="duckdb"),
    measured_at=NOW,
)


def rows(**values: float) -> list[Measurement]:
    return [
        Measurement(kind=kind, size=8.0, value=value, deviation=0.02)
        for kind, value in values.items()
    ]


def test_a_stamp_survives_json() -> None:
    assert Stamp.from_json(json.loads(json.dumps(STAMP.to_json()))) == STAMP


def test_here_is_not_stale() -> None:
    here = stamp_here("duckdb", NOW)
    assert here.machine.cores >= 1 and here.machine.memory_bytes > 0
    assert stale(here, here) == []


def test_another_machine_or_version_is_stale() -> None:
    machine = replace(STAMP.machine, cores=8)
    versions = replace(STAMP.versions, torch="2.6")
    now = replace(STAMP, machine=machine, versions=versions)
    assert stale(STAMP, now) == ["cores was 2, is 8", "torch was 2.5, is 2.6"]
    assert STAMP.fingerprint != now.fingerprint


def test_the_time_is_no_part_of_the_fingerprint() -> None:
    later = replace(STAMP, measured_at=NOW + timedelta(days=31))
    assert later.fingerprint == STAMP.fingerprint
    assert stale(STAMP, later) == ["it is 31 days old"]
    assert stale(STAMP, later, max_age_days=60) == []


def test_drift_beyond_the_limit_is_named() -> None:
    stored = rows(product=1.0, copy=1.0, update_sgd=1.0)
    fresh = rows(product=1.3, copy=1.05, update_sgd=0.7, dispatch=1.0)
    assert drift(stored, fresh) == pytest.approx({"product": 0.3, "copy": 0.05, "update_sgd": -0.3})
    assert drifted(stored, fresh) == [
        "product takes 30% longer than it did",
        "update_sgd takes 30% less than it did",
    ]


def test_a_change_within_the_noise_is_none() -> None:
    noisy = [replace(row, deviation=0.5) for row in rows(product=1.3)]
    assert drift(rows(product=1.0), noisy) == {"product": 0.0}


def test_assumed_rows_do_not_drift() -> None:
    stored = [replace(row, assumed=True) for row in rows(product=1.0)]
    assert drift(stored, rows(product=3.0)) == {}
