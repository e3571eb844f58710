"""What hops have cost so far, as what steps of candidates like theirs will cost. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from mmdb.db.connection import Row
from mmdb.plan.equations.makespan import slowdown_at
from mmdb.plan.profile.fits.line import fit_line
from mmdb.plan.profile.fits.points import Point

#: Hyper-parameters that decide, beside the architecture and the batch size, what a step costs.
COSTLY = ("optimizer", "loss", "class_weights", "accumulate", "clip_norm", "clip_value", "amp",
          "augment")  # fmt: skip
#: Relation of two batch sizes from which on a line is drawn through what was measured at them.
APART = 1.5
#: Medians that a single measurement counts as, at most: a first step, a busy machine.
OUTLYING = 4.0
#: Deviation of hops that are too few to show one.
DEVIATION = 0.05


def likeness(architecture_hash: bytes, config: Mapping[str, Any]) -> str:
    """Return what candidates have in common whose steps of as many rows cost the same."""
    costly = {key: config[key] for key in COSTLY if config.get(key) is not None}
    decays = bool(config.get("weight_decay"))
    return f"{architecture_hash.hex()} {json.dumps([costly, decays], sort_keys=True)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What hops of like candidates have cost, as if each worker had been alone.

    Attributes:
        steps: seconds of a step over its rows, one point for each batch size.
        overhead_s: of a train hop, beside computing, reading, and loading a state; None where
            steps alone were measured.
        read_row_s, validation_row_s: None where no hop has read, or validated.
        deviation: relative standard deviation of a hop's seconds.
    """

    steps: tuple[Point, ...]
    overhead_s: float | None
    read_row_s: float | None
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


def measured(rows: Iterable[Row], slowdown: Sequence[float]) -> dict[str, Measured]:
    """Return what was measured, by likeness.

    Args:
        rows: hops, as `find_measured` returns them.
        slowdown: of a step at 1, 2, ... busy workers, which a hop's seconds are divided by.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    keys: dict[tuple[bytes, str], str] = {}
    for row in rows:
        key = bytes(row["architecture_hash"]), row["config"]
        if key not in keys:
            keys[key] = likeness(key[0], json.loads(key[1]))
        groups[keys[key]].append(row)
    found = {like: _measured(hops, tuple(slowdown)) for like, hops in groups.items()}
    return {like: one for like, one in found.items() if one is not None}


def typical(values: Sequence[float]) -> float:
    """Return a mean in which what is far above the median counts as OUTLYING medians.

    A run takes the sum of its hops, so the median alone would say too little.
    """
    most = OUTLYING * median(values)
    return fmean(min(value, most) for value in values)


def gap_s(rows: Iterable[Row]) -> float:
    """Return the seconds between a worker's hops in which it is told of the next: the median."""
    by_worker: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_worker[row["run_id"], row["worker"]].append(row)
    gaps = []
    for hops in by_worker.values():
        hops.sort(key=lambda hop: hop["started"])
        gaps += [max(0.0, b["started"] - a["finished"]) for a, b in pairwise(hops)]
    return median(gaps) if gaps else 0.0


def _measured(hops: Sequence[Row], slowdown: tuple[float, ...]) -> Measured | None:
    done = [hop for hop in hops if hop["steps"] and hop["compute_s"]]
    trained = [hop for hop in done if hop["role"] == "train"]
    timed = [] if trained else [hop for hop in done if hop["role"] == "steps"]
    if not trained and not timed:
        return None
    by_size: dict[int, list[float]] = defaultdict(list)
    for hop in trained or timed:
        seconds = hop["compute_s"] / hop["steps"] / _slow(hop, slowdown)
        by_size[round(hop["row_count"] / hop["steps"])].append(seconds)
    points = []
    misses: list[float] = []
    for size, seconds in sorted(by_size.items()):
        middle = median(seconds)
        points.append(Point(float(size), typical(seconds), 0.0, len(seconds)))
        misses += [abs(one / middle - 1) for one in seconds] if len(seconds) > 1 else []
    checked = [hop for hop in hops if hop["role"] == "validation" and hop["row_count"]]
    read = [hop["read_s"] / hop["row_count"] for hop in hops if hop["read_s"] and hop["row_count"]]
    return Measured(
        steps=tuple(points),
        overhead_s=typical(
            [
                max(0.0, hop["total_s"] - hop["compute_s"] - hop["read_s"] - hop["load_s"])
                for hop in trained
            ]
        )
        if trained
        else None,
        read_row_s=median(read) if read else None,
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


def _slow(hop: Row, slowdown: tuple[float, ...]) -> float:
    return slowdown_at(slowdown, max(1, hop["workers"] or 1))
