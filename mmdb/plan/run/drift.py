"""Whether the machine still is what was measured: hops of the last days and what they should take.

They are compared with like ones that were done soon after the machine was calibrated, where there
are any. Where there are none they are compared with what the profile says of their steps; that
misses more, so only a larger difference tells of a change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import hypot, sqrt
from statistics import median
from time import time

from mmdb.db.connection import Row
from mmdb.plan.equations.makespan import slowdown_at
from mmdb.plan.profile.profile import Profile
from mmdb.plan.profile.row import HINT
from mmdb.plan.profile.stamp import MAX_DRIFT
from mmdb.plan.run.measured import Likeness
from mmdb.plan.work.residual import BOUND

#: Seconds of a step of candidates that are alike, over so many rows, by the profile.
Predicted = Callable[[str, int], float | None]
#: Candidates that are alike, and the rows of their steps.
Key = tuple[str, int]
DAY_S = 86_400.0
#: Days until now that count as lately, and days after a calibration that count as then.
LATELY_DAYS, THEN_DAYS = 3.0, 1.0
#: Hops of one kind below which a median says nothing.
LEAST = 5
#: Standard deviations beyond which a difference is one.
DEVIATIONS = 2.0


def drifted(
    rows: Iterable[Row],
    profile: Profile,
    slowdown: Sequence[float],
    *,
    predicted: Predicted,
    now_s: float | None = None,
) -> list[str]:
    """Return what to say of a machine that has changed since it was measured.

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
        if len(seconds) < LEAST:
            continue
        before, middle, ought = then.get(key, ()), median(seconds), predicted(*key)
        if len(before) >= LEAST:
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
    likenesses = Likeness()
    since = max(measured_s, now_s - LATELY_DAYS * DAY_S)
    is_young = now_s - measured_s < THEN_DAYS * DAY_S
    for row in rows:
        if row["role"] != "train" or row["group_size"] or not row["steps"] or not row["compute_s"]:
            continue
        key = likenesses.of(row), round(row["row_count"] / row["steps"])
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


def _noise(profile: Profile) -> float:
    measured = [
        point.deviation
        for kind, points in profile.points.items()
        if kind not in profile.assumed
        for point in points
    ]
    return median(measured) if measured else 0.0


def _days(now_s: float, measured_s: float) -> str:
    return "the calibration" if now_s - measured_s < LATELY_DAYS * DAY_S else "a few days ago"
