"""The scheduler: who trains what where. Pure and deterministic; the driver does the waiting."""

from __future__ import annotations

from collections.abc import Mapping

from mmdb.train.schedule.core import POLICIES, Placement, Policy
from mmdb.train.schedule.portfolio import choose
from mmdb.train.schedule.schedule import MAX_FAILURES, MAX_LOSSES, RunSchedule
from mmdb.train.schedule.simulate import Simulation, simulate
from mmdb.train.schedule.workload import (
    STRATEGIES,
    Done,
    Event,
    Failed,
    HopAssignment,
    Lost,
    Ready,
    ScheduledHop,
    Strategy,
    TrainingProgress,
    Workload,
    next_part,
    next_parts,
    strategy_of,
)

__all__ = [
    "MAX_FAILURES",
    "MAX_LOSSES",
    "POLICIES",
    "STRATEGIES",
    "Done",
    "Event",
    "Failed",
    "HopAssignment",
    "Lost",
    "Placement",
    "Policy",
    "Ready",
    "RunSchedule",
    "ScheduledHop",
    "Simulation",
    "Strategy",
    "TrainingProgress",
    "Workload",
    "begin",
    "choose",
    "next_part",
    "next_parts",
    "simulate",
    "strategy_of",
]


def begin(
    workload: Workload,
    progress: Mapping[int, TrainingProgress] | None = None,
    *,
    placement: Placement | None = None,
    policy: Policy | None = None,
    fuse: int = 1,
) -> RunSchedule:
    """Return the schedule of a run, resumed where `progress` says by candidate ordinal."""
    schedule = RunSchedule(workload, placement=placement, policy=policy, fuse=fuse)
    for candidate in range(workload.candidates):
        schedule.add((progress or {}).get(candidate, TrainingProgress()), workload.epochs)
    return schedule
