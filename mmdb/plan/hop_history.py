"""The cost of steps by hops of like candidates, and by how far earlier predictions were off."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.plan.equations import slowdown_at
from mmdb.plan.planned_run import CostKeys, PlannedRun
from mmdb.plan.profile.fits import Point, fit_line
from mmdb.plan.profile.measurements import Stamp
from mmdb.plan.step import CandidateCost
from mmdb.plan.step.corrections import FEATURES, VERSION, Residual, learn

#: Relation of two batch sizes from which on a line is drawn through what was measured at them.
APART = 1.5
#: Medians that a single measurement counts as, at most: a first step, a busy machine.
OUTLYING = 4.0
#: Hops from which on what they took together counts.
LEAST = 3
#: Deviation of hops that are too few to show one.
DEVIATION = 0.05


class GroupRound(NamedTuple):
    """The time of a group's step, less what other workers on its node added."""

    members: int
    rows: float  # of a step, of all members
    step_s: float  # computing and exchanging


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measured cost of hops of like candidates, less what other workers added.

    Attributes:
        steps: seconds of a step over its rows, one point for each batch size.
        rounds: of groups that trained a candidate together.
        build_s: of making a module for a state; None where steps alone were measured.
        validation_row_s: None where no hop has validated.
        deviation: relative standard deviation of a hop's seconds.
    """

    steps: tuple[Point, ...]
    rounds: tuple[GroupRound, ...]
    build_s: float | None
    validation_row_s: float | None
    state_bytes: int
    deviation: float
    hops: int  # or steps, where there were no hops

    def line(self, cold: tuple[float, float] | None, rows: int) -> tuple[float, float]:
        """Return a0 and a1 of a step's seconds, a0 + a1 x rows.

        Args:
            cold: a0 and a1 by the roofline, whose relation holds where one batch size was measured.
            rows: of the steps that are planned, which the line is to be closest to.
        """
        sizes = [point.size for point in self.steps]
        nearest = min(self.steps, key=lambda point: abs(point.size - rows))
        if max(sizes) >= APART * min(sizes):
            found = fit_line(self.steps)
            if max(nearest.size, rows) >= APART * min(nearest.size, rows):
                return found.fixed_s, found.unit_s
            cold = found.fixed_s, found.unit_s  # through the point that was measured
        if cold is None:
            return 0.0, nearest.seconds / nearest.size
        factor = nearest.seconds / (cold[0] + cold[1] * nearest.size)
        return cold[0] * factor, cold[1] * factor


def measured(
    rows: Iterable[Row], slowdown: Sequence[float], load_byte_s: float = 0.0
) -> dict[str, Measured]:
    """Return what was measured, by cost key.

    Args:
        rows: hops, as `find_measured` returns them.
        slowdown: of a step at 1, 2, ... busy workers, which a hop's seconds are divided by.
        load_byte_s: what a plan adds for a byte of a state that a worker takes up.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    keys = CostKeys()
    for row in rows:
        groups[keys.of(row)].append(row)
    found = {like: _measured(hops, tuple(slowdown), load_byte_s) for like, hops in groups.items()}
    return {like: one for like, one in found.items() if one is not None}


def with_busy(rows: list[Row]) -> list[Row]:
    """Return hops with the mean of the workers that were busy meanwhile as their `workers`.

    A run whose candidates take unlike times has workers that wait for a partition, and the hop that
    they wait for is done as if it were alone. Of a run that has candidates of which there are no
    hops here it is not known; theirs stay as they are.

    Args:
        rows: as `find_measured` returns them.
    """
    found, by_run = list(rows), defaultdict[int, list[int]](list)
    for place, row in enumerate(rows):
        by_run[row["run_id"]].append(place)
    for places in by_run.values():
        hops = [rows[place] for place in places]
        if len({hop["candidate_id"] for hop in hops}) < (hops[0]["candidates"] or 0):
            continue
        first = min(hop["started"] for hop in hops)
        begun, ended = (np.array([h[key] for h in hops]) - first for key in ("started", "finished"))
        at_end, at_begin = (_since(t, begun) - _since(t, ended) for t in (ended, begun))
        busy = (at_end - at_begin) / np.maximum(ended - begun, 1e-9)
        for place, workers in zip(places, busy.tolist(), strict=True):
            found[place] = {**rows[place], "workers": workers}
    return found


def _since(when: NDArray[np.float64], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the seconds that have passed at some moments since all times before them, summed."""
    times = np.sort(times)
    before = np.searchsorted(times, when)
    return np.asarray(when * before - np.append(0.0, times.cumsum())[before])


def own_first(run: PlannedRun, rows: list[Row], turns: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return hops and turns without those of other runs that say what a run's own say.

    What a run that goes on takes now says more of what is left than what others took before.

    Args:
        rows, turns: as `find_measured` and `find_turns` return them.
    """
    if run.finished:
        return rows, turns
    keys = CostKeys()
    own = Counter(keys.of(row) for row in rows if row["run_id"] == run.run_id)
    known = [r for r in rows if r["run_id"] == run.run_id or own[keys.of(r)] < LEAST]
    mine = [turn for turn in turns if turn["run_id"] == run.run_id and turn["hops"] > LEAST]
    return known, mine or turns


def typical(values: Sequence[float]) -> float:
    """Return a mean in which what is far above the median counts as OUTLYING medians.

    A run takes the sum of its hops, so the median alone would say too little.
    """
    most = OUTLYING * median(values)
    return fmean(min(value, most) for value in values)


def median_of_runs(values: Sequence[tuple[float, int]]) -> float:
    """Return the median of what runs took, of those with LEAST hops if there are such.

    For minutes, others may take a virtual machine's cores: what such a run took says little of the
    next one, and would draw a mean up.

    Args:
        values: of each run, at least one, and of how many hops it is the mean.
    """
    many = [value for value, hops in values if hops >= LEAST]
    return median(many or [value for value, _ in values])


def _measured(
    hops: Sequence[Row], slowdown: tuple[float, ...], load_byte_s: float
) -> Measured | None:
    done = [hop for hop in hops if hop["steps"] and hop["compute_s"]]
    trained = [hop for hop in done if hop["role"] == "train" and not hop["group_size"]]
    timed = [] if trained else [hop for hop in done if hop["role"] == "steps"]
    if not trained and not timed:
        return None
    by_size: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for hop in trained or timed:
        seconds = hop["compute_s"] / hop["steps"] / _slow(hop, slowdown)
        by_size[round(hop["row_count"] / hop["steps"])][hop["run_id"]].append(seconds)
    points = []
    misses: list[float] = []
    for size, by_run in sorted(by_size.items()):
        taken = [one for some in by_run.values() for one in some]
        usual = median(taken)
        step_s = median_of_runs([(typical(some), len(some)) for some in by_run.values()])
        points.append(Point(float(size), step_s, 0.0, len(taken)))
        misses += [abs(one / usual - 1) for one in taken] if len(taken) > 1 else []
    checked = [hop for hop in hops if hop["role"] == "validation" and hop["row_count"]]
    return Measured(
        steps=tuple(points),
        rounds=tuple(_rounds(done, slowdown)),
        build_s=_build_s(trained, slowdown, load_byte_s) if trained else None,
        validation_row_s=typical(
            [hop["compute_s"] / hop["row_count"] / _slow(hop, slowdown) for hop in checked]
        )
        if checked
        else None,
        state_bytes=max(hop["state_bytes"] for hop in trained or timed),
        # Half of all misses are below the median one; 1.48 of it is a standard deviation.
        deviation=max(0.01, 1.48 * median(misses)) if len(misses) > 4 else DEVIATION,
        hops=len(trained) or sum(hop["steps"] for hop in timed),
    )


def _rounds(hops: Iterable[Row], slowdown: tuple[float, ...]) -> Iterator[GroupRound]:
    """Yield what rounds of each size of group took, the mean of all but each candidate's first.

    Its first one holds the time in which the members met, too.
    """
    found: dict[int, dict[float, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for hop in hops:
        if hop["group_size"]:
            found[hop["candidate_id"]][hop["started"]].append(hop)
    by_size: dict[tuple[int, int], list[float]] = defaultdict(list)
    for rounds in found.values():
        for started in sorted(rounds)[1:] or rounds:
            members = rounds[started]
            if len(members) != members[0]["group_size"]:  # an epoch's last round may have fewer
                continue
            rows = sum(hop["row_count"] for hop in members)
            step_s = max(hop["compute_s"] for hop in members) / members[0]["steps"]
            size = len(members), round(rows / members[0]["steps"])
            by_size[size].append(step_s / slowdown_at(slowdown, len(members)))
    for (count, rows), seconds in sorted(by_size.items()):
        yield GroupRound(count, float(rows), typical(seconds))


def _build_s(
    trained: Iterable[Row], slowdown: tuple[float, ...], load_byte_s: float
) -> float | None:
    """Return what it took to make the module of a state that the hop's worker had not left itself.

    A worker's first hop does not count, which finds nothing ready, unless there is no other one;
    nor do runs that were interrupted, in which hops are done again.
    """
    seconds: list[float] = []
    firsts: list[float] = []
    begun: set[tuple[int, str]] = set()
    last: dict[int, str] = {}
    for hop in sorted(trained, key=lambda hop: hop["started"]):
        candidate, worker = hop["candidate_id"], (hop["run_id"], hop["worker"])
        before = last.get(candidate)
        is_taken = before is not None and before != hop["worker"]
        if (hop["ordinal"] == 0 or is_taken) and hop["starts"] == 1:
            load_s = hop["load_s"] / _slow(hop, slowdown)
            load_s -= hop["state_bytes"] * load_byte_s if is_taken else 0.0
            (seconds if worker in begun else firsts).append(max(0.0, load_s))
        begun.add(worker)
        last[candidate] = hop["worker"]
    if seconds:
        return typical(seconds) if any(seconds) else 0.0
    return min(firsts, default=0.0)


def _slow(hop: Row, slowdown: tuple[float, ...]) -> float:
    return slowdown_at(slowdown, max(1, hop["workers"] or 1))


_Q = load("residual")
#: Predictions that a plan keeps, and those of trained candidates that are learned from: the last.
MOST_KEPT, MOST_LEARNED = 100, 400
#: Predictions among which trained ones are looked for: the last.
MOST_PLANNED = 4_000
#: Hops of a candidate that are looked at, and those below which they say nothing: the first are
#: those of a process that has yet to warm up.
HOPS, FEW_HOPS = 9, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePrediction:
    """What a profile says of a candidate's steps."""

    candidate_id: int
    cost: CandidateCost
    features: NDArray[np.float64]
    is_plain: bool  # its steps do nothing that the profile knows nothing of


def keep(
    connection: Connection, stamp: Stamp | None, found: Mapping[str, Sequence[ProfilePrediction]]
) -> None:
    """Keep what a profile says of candidates, each once; nothing of one that was assumed.

    Args:
        found: by cost key.
    """
    if stamp is None:
        return
    plain = [one for some in found.values() for one in some if one.is_plain]
    connection.run_many(
        _Q.add_prediction,
        [
            {
                "candidate_id": one.candidate_id,
                "fingerprint": stamp.fingerprint,
                "profiled_at": stamp.measured_at,
                "version": VERSION,
                "batch_size": one.cost.batch_size,
                "step_s": one.cost.step_s,
                "row_s": one.cost.row_s,
                "features": json.dumps(one.features.tolist()),
            }
            for one in plain[:MOST_KEPT]
        ],
    )


def residual_of(
    connection: Connection, stamp: Stamp | None, slowdown: Sequence[float]
) -> Residual | None:
    """Return what hops on this machine teach of its profile; None where they are too few.

    Args:
        stamp: of the profile; None if it was assumed.
        slowdown: of a step at 1, 2, ... busy workers, which a hop's seconds are divided by.
    """
    if stamp is None:
        return None
    rows = connection.rows(
        _Q.find_trained,
        fingerprint=stamp.fingerprint,
        profiled_at=stamp.measured_at,
        version=VERSION,
        node=stamp.machine.node,
        device=stamp.machine.device,
        environment=f"torch {stamp.versions.torch}, {stamp.machine.capability}, %",
        planned=MOST_PLANNED,
        most=MOST_LEARNED,
        hops=HOPS,
        few=FEW_HOPS,
    )
    return learned(rows, slowdown)


def learned(rows: Iterable[Row], slowdown: Sequence[float]) -> Residual | None:
    """Return the residual of hops, as `find_trained` returns them."""
    by_candidate: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_candidate[row["candidate_id"]].append(row)
    features, predicted, measured = [], [], []
    for hops in by_candidate.values():
        point = _point(hops[0]["features"])
        if len(hops) < FEW_HOPS or point is None or not all(map(_predicted, hops)):
            continue
        # A partition's last batch may be smaller than the others.
        relations = [_seconds(hop, slowdown) / _predicted(hop) for hop in hops]
        features.append(point)
        predicted.append(1.0)
        measured.append(median(relations))
    return learn(features, predicted, measured)


def _point(text: str) -> NDArray[np.float64] | None:
    """Return a row's features; None if they are none, as any trainer may add rows."""
    found = json.loads(text)
    is_point = isinstance(found, list) and len(found) == FEATURES
    if not is_point or not all(isinstance(one, int | float) for one in found):
        return None
    return np.array(found, dtype=float)


def _seconds(hop: Row, slowdown: Sequence[float]) -> float:
    slow = slowdown_at(tuple(slowdown), max(1, hop["workers"] or 1))
    return float(hop["compute_s"] / hop["steps"] / slow)


def _predicted(hop: Row) -> float:
    return float(hop["step_s"] + hop["row_s"] * hop["row_count"] / hop["steps"])


def residual_notes(
    residual: Residual | None,
    found: Mapping[str, Sequence[ProfilePrediction]],
    known: Iterable[str],
) -> list[str]:
    """Return what to say of the candidates that were corrected.

    Args:
        found: by cost key.
        known: cost keys that were measured, and are not corrected.
    """
    measured = set(known)
    cold = [one for like, some in found.items() if like not in measured for one in some]
    if residual is None or not cold:
        return []
    changes = [residual.factor(one.features) - 1 for one in cold]
    low, high = f"{min(changes):+.0%}", f"{max(changes):+.0%}"
    amount = low if low == high else f"{low} to {high}"
    return [
        "Steps of candidates that never ran here are predicted by the profile, and corrected by "
        f"{amount}, as steps of {len(residual.known)} others have shown."
    ]
