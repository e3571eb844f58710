"""The overheads of a machine that hops have shown, and whether its profile still holds. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from math import hypot, sqrt
from statistics import fmean, median
from time import time
from typing import NamedTuple

from mmdb.db.connection import Row
from mmdb.plan.equations import slowdown_at
from mmdb.plan.hop_history import LEAST, median_of_runs
from mmdb.plan.planned_run import CostKeys
from mmdb.plan.profile.machine_profile import MachineProfile
from mmdb.plan.profile.measurements import HINT, MAX_DRIFT
from mmdb.plan.step.corrections import BOUND

#: Of a partition that its node has in the cache, until one has been mapped.
MAPPED_S = 0.01
#: Strategies whose hops leave a state as `mop` does: at an epoch's end for good, else in place.
_ALONE = ("mop", "task")


#: Candidates that are alike, their dataset, and the rows of a step.
_Like = tuple[str, int, int]


class Pace(NamedTuple):
    """Seconds of a step, or what they are over others', as the mean of so many hops."""

    value: float
    hops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Seconds beside those of steps, of a worker alone; None or 0 where no hop has shown them.

    Attributes:
        slowdown: of a step at 1, 2, ... busy workers of the node.
        read_row_s: of bringing a row to a worker's session, once a node.
        hop_s: of a train hop beside computing, reading, and loading and naming a state.
        durable_s: of a hop at an epoch's end beyond that, whatever the state's bytes.
        gap_s: between two hops of a worker, in which it is told of the next.
        late_s: by which each worker begins after the one before it.
    """

    slowdown: tuple[float, ...]
    read_row_s: float | None = None
    hop_s: float | None = None
    durable_s: float = 0.0
    gap_s: float = 0.0
    late_s: float = 0.0


def observed(
    rows: Sequence[Row],
    turns: Sequence[Row],
    paces: Iterable[Row],
    slowdown: Sequence[float],
    *,
    partitions: int,
    encode_byte_s: float = 0.0,
    publish_byte_s: float = 0.0,
    durable_byte_s: float = 0.0,
) -> Observed:
    """Return what hops have shown.

    Args:
        rows: hops of candidates with the architectures that are planned, as `find_measured`
            returns them; the others are returned by the query of their name.
        slowdown: by the profile, for numbers of workers that were not seen.
        partitions: that an epoch visits.
        encode_byte_s, publish_byte_s, durable_byte_s: what a plan adds for a byte of a state to
            every train hop, to one after which another worker takes it up, and to one at an
            epoch's end.
    """
    factors = _slowdown(paces, {bytes(row["architecture_hash"]) for row in rows}, tuple(slowdown))
    hop_s, durable_s = _overheads(
        rows,
        factors,
        partitions,
        encode_byte_s=encode_byte_s,
        publish_byte_s=publish_byte_s,
        durable_byte_s=durable_byte_s,
    )
    return Observed(
        slowdown=factors,
        read_row_s=_reading(rows),
        hop_s=hop_s,
        durable_s=durable_s,
        gap_s=_gap_s(turns),
        late_s=_late_s(turns),
    )


def _gap_s(turns: Iterable[Row]) -> float:
    """Return the seconds between a worker's hops in which it was not without work.

    A worker alone never waits for work, but at times for the database's disk: its mean counts. Of
    several, that of the one that waited least.
    """
    by_run: dict[int, list[float]] = defaultdict(list)
    alone = set()
    for turn in turns:
        if turn["hops"] > 1:
            idle_s = turn["ended"] - turn["began"] - turn["busy_s"]
            by_run[turn["run_id"]].append(max(0.0, idle_s) / (turn["hops"] - 1))
            if turn["workers"] == 1:
                alone.add(turn["run_id"])
    gaps = [min(some) for run_id, some in by_run.items() if not alone or run_id in alone]
    return median(gaps) if gaps else 0.0


def _late_s(turns: Iterable[Row]) -> float:
    """Return the seconds by which a worker begins after the one before it: the median of runs."""
    begun: dict[int, list[float]] = defaultdict(list)
    for turn in turns:
        begun[turn["run_id"]].append(turn["began"])
    late = [(max(times) - min(times)) / (len(times) - 1) for times in begun.values() if times[1:]]
    return median(late) if late else 0.0


def _slowdown(
    paces: Iterable[Row], own: Container[bytes], profiled: tuple[float, ...]
) -> tuple[float, ...]:
    """Return slowdowns in which what like candidates took at 1 and at more workers counts most.

    Of those with the architectures that are planned, if there are such; else of all others.
    """
    steps: dict[_Like, dict[int, dict[int, list[Pace]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    mine, keys = set(), CostKeys()
    for row in paces:
        key = keys.of(row), row["dataset_id"], round(row["row_count"] / row["steps"])
        pace = Pace(row["compute_s"] / row["steps"], row["hops"])
        steps[key][max(1, row["workers"] or 1)][row["run_id"]].append(pace)
        if bytes(row["architecture_hash"]) in own:
            mine.add(key)
    by_own = _ratios(steps[key] for key in mine)
    by_all = _ratios(steps.values())
    known = {**by_all, **by_own}
    most = max([len(profiled), *known])
    factors = (known.get(k) or slowdown_at(profiled, k) for k in range(1, most + 1))
    return tuple(accumulate(factors, max))  # more workers are never slowed down less


def _ratios(steps: Iterable[Mapping[int, Mapping[int, Sequence[Pace]]]]) -> dict[int, float]:
    """Return by workers what steps took over what like ones took alone: the median of runs."""
    found: dict[int, dict[int, list[Pace]]] = defaultdict(lambda: defaultdict(list))
    for by_workers in steps:
        alone = [_mean(some) for some in by_workers.get(1, {}).values()]
        if sum(hops for _, hops in alone) < LEAST:
            continue
        alone_s = median_of_runs(alone)
        for workers, by_run in by_workers.items():
            for run_id, some in by_run.items() if workers > 1 else ():
                step_s, hops = _mean(some)
                found[workers][run_id].append(Pace(step_s / alone_s, hops))
    ratios = {
        workers: [mean for mean in map(_mean, by_run.values()) if mean.hops >= LEAST]
        for workers, by_run in sorted(found.items())
    }
    return {workers: max(1.0, median_of_runs(some)) for workers, some in ratios.items() if some}


def _mean(some: Sequence[Pace]) -> Pace:
    hops = sum(one.hops for one in some)
    return Pace(sum(one.value * one.hops for one in some) / hops, hops)


def _reading(rows: Sequence[Row]) -> float | None:
    """Return what reading a row takes: nothing is decoded again that the node has decoded once."""
    ordered = sorted(rows, key=lambda row: row["started"])
    sizes: dict[int, int] = {}
    mapped = []
    for row in ordered:
        if row["part_id"] in sizes and row["read_s"]:
            mapped.append(row["read_s"])
        sizes[row["part_id"]] = row["row_count"]
    if not sum(sizes.values()):
        return None
    each_s = fmean(mapped) if mapped else MAPPED_S
    return each_s * len(sizes) / sum(sizes.values())


def _overheads(
    rows: Iterable[Row],
    slowdown: tuple[float, ...],
    partitions: int,
    *,
    encode_byte_s: float,
    publish_byte_s: float,
    durable_byte_s: float,
) -> tuple[float | None, float]:
    """Return what a train hop takes beside its work, and what one at an epoch's end adds.

    A state that was published and then taken up again by its own worker counts as not published:
    no row says so.
    """
    epochs: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["role"] == "train" and row["group_size"] is None and row["strategy"] in _ALONE:
            epochs[row["candidate_id"], row["epoch"]].append(row)
    within, ends = [], []
    for hops in epochs.values():
        if len(hops) < partitions:
            continue
        hops.sort(key=lambda hop: hop["finished"])
        for hop, after in zip_longest(hops, hops[1:]):
            spent = hop["total_s"] - hop["compute_s"] - hop["read_s"] - hop["load_s"]
            spent = spent / slowdown_at(slowdown, max(1, hop["workers"] or 1))
            spent -= hop["state_bytes"] * encode_byte_s
            if after is None:
                ends.append(max(0.0, spent - hop["state_bytes"] * durable_byte_s))
            else:
                moves = after["worker"] != hop["worker"]
                within.append(max(0.0, spent - moves * hop["state_bytes"] * publish_byte_s))
    if not within:
        return (fmean(ends), 0.0) if ends else (None, 0.0)
    hop_s = fmean(within)
    return hop_s, max(0.0, fmean(ends) - hop_s)


#: Seconds of a step of candidates that are alike, over so many rows, by the profile.
Predicted = Callable[[str, int], float | None]
#: Candidates that are alike, and the rows of their steps.
Key = tuple[str, int]
DAY_S = 86_400.0
#: Days until now that count as lately, and days after a calibration that count as then.
LATELY_DAYS, THEN_DAYS = 3.0, 1.0
#: Hops of one kind below which a median says nothing.
LEAST_TO_DRIFT = 5
#: Standard deviations beyond which a difference is one.
DEVIATIONS = 2.0


def drifted(
    rows: Iterable[Row],
    profile: MachineProfile,
    slowdown: Sequence[float],
    *,
    predicted: Predicted,
    now_s: float | None = None,
) -> list[str]:
    """Return what to say of a machine that has changed since it was measured.

    They are compared with like ones that were done soon after the machine was calibrated, where
    there are any. Where there are none they are compared with what the profile says of their steps;
    that misses more, so only a larger difference tells of a change.

    Args:
        rows: hops on this machine with these versions, as `find_measured` returns them.
        slowdown: of a step at 1, 2, ... busy workers.
        now_s: seconds since 1970; those that it is if left out.
    """
    if profile.stamp is None:
        return []
    now_s = time() if now_s is None else now_s
    measured_s = profile.stamp.measured_at.timestamp()
    then, lately = _sorted(rows, tuple(slowdown), measured_s, now_s)
    noise = _noise(profile)
    by_hops: list[tuple[float, int]] = []
    by_profile: list[tuple[float, int]] = []
    for key, seconds in lately.items():
        if len(seconds) < LEAST_TO_DRIFT:
            continue
        before, middle, ought = then.get(key, ()), median(seconds), predicted(*key)
        if len(before) >= LEAST_TO_DRIFT:
            limit = DEVIATIONS * hypot(_spread(before), _spread(seconds))
            by_hops.append((_beyond(middle / median(before) - 1, limit), len(seconds)))
        elif ought:
            limit = BOUND + DEVIATIONS * hypot(noise, _spread(seconds))
            by_profile.append((_beyond(middle / ought - 1, limit), len(seconds)))
    changes = by_hops or by_profile
    change = median(one for one, _ in changes) if changes else 0.0
    if not change:
        return []
    hops = sum(count for _, count in changes)
    more = "more" if change > 0 else "less"
    return [
        f"Steps of {hops} hops since {_days(now_s, measured_s)} took {abs(change):.0%} {more} than "
        f"this profile says: the machine has changed, or others use it. {HINT}"
    ]


def _sorted(
    rows: Iterable[Row],
    slowdown: tuple[float, ...],
    measured_s: float,
    now_s: float,
) -> tuple[Mapping[Key, list[float]], Mapping[Key, list[float]]]:
    """Return seconds of steps by kind: soon after the calibration, and of the last days."""
    then: dict[Key, list[float]] = defaultdict(list)
    lately: dict[Key, list[float]] = defaultdict(list)
    keys = CostKeys()
    since = max(measured_s, now_s - LATELY_DAYS * DAY_S)
    is_young = now_s - measured_s < THEN_DAYS * DAY_S
    for row in rows:
        if row["role"] != "train" or row["group_size"] or not row["steps"] or not row["compute_s"]:
            continue
        key = keys.of(row), round(row["row_count"] / row["steps"])
        slow = slowdown_at(slowdown, max(1, row["workers"] or 1))
        seconds = row["compute_s"] / row["steps"] / slow
        if not is_young and 0 < row["finished"] - measured_s < THEN_DAYS * DAY_S:
            then[key].append(seconds)
        elif row["finished"] > since:
            lately[key].append(seconds)
    return then, lately


def _beyond(change: float, limit: float) -> float:
    return change if abs(change) > max(limit, MAX_DRIFT) else 0.0


def _spread(seconds: Sequence[float]) -> float:
    """Return the relative standard deviation of a median, by the middle of all misses."""
    middle = median(seconds)
    misses = median(abs(one / middle - 1) for one in seconds)
    return 1.48 * misses / sqrt(len(seconds))


def _noise(profile: MachineProfile) -> float:
    measured = [
        point.deviation
        for kind, points in profile.points.items()
        if kind not in profile.assumed
        for point in points
    ]
    return median(measured) if measured else 0.0


def _days(now_s: float, measured_s: float) -> str:
    return "the calibration" if now_s - measured_s < LATELY_DAYS * DAY_S else "a few days ago"
