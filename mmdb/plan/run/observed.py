"""What hops have shown of a machine, whichever candidate they trained. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from statistics import fmean, median

from mmdb.db.connection import Row
from mmdb.plan.equations.makespan import slowdown_at
from mmdb.plan.run.measured import likeness, middle

#: Of a partition that its node has in the cache, until one has been mapped.
MAPPED_S = 0.01
#: Hops of a kind from which on what they took together counts.
LEAST = 3
#: Strategies whose hops leave a state as `mop` does: at an epoch's end for good, else in place.
_ALONE = ("mop", "task")


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
            every train hop, to one that leaves it to another worker, and to one at an epoch's end.
    """
    factors = _slowdown(paces, {bytes(row["architecture_hash"]) for row in rows}, tuple(slowdown))
    added = encode_byte_s, publish_byte_s, durable_byte_s
    hop_s, durable_s = _overheads(rows, factors, partitions, added)
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
    steps: dict[tuple[str, int, int], dict[int, list[tuple[float, int]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    mine = set()
    for row in paces:
        named = bytes(row["architecture_hash"])
        like = likeness(named, json.loads(row["config"]))
        key = like, row["dataset_id"], round(row["row_count"] / row["steps"])
        steps[key][max(1, row["workers"] or 1)].append(
            (row["compute_s"] / row["steps"], row["hops"])
        )
        if named in own:
            mine.add(key)
    by_own = _ratios(steps[key] for key in mine)
    by_all = _ratios(steps.values())
    known = {**by_all, **by_own}
    most = max([len(profiled), *known])
    factors = (known.get(k) or slowdown_at(profiled, k) for k in range(1, most + 1))
    return tuple(accumulate(factors, max))  # more workers are never slowed down less


def _ratios(steps: Iterable[Mapping[int, Sequence[tuple[float, int]]]]) -> dict[int, float]:
    """Return by workers what steps took over what like ones took alone: the median of hops."""
    found: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for by_workers in steps:
        alone = by_workers.get(1, ())
        for workers, some in by_workers.items():
            if workers > 1 and min(_count(alone), _count(some)) >= LEAST:
                alone_s = middle(alone)
                found[workers] += [(step_s / alone_s, hops) for step_s, hops in some]
    return {k: max(1.0, middle(some)) for k, some in sorted(found.items())}


def _count(some: Sequence[tuple[float, int]]) -> int:
    return sum(hops for _, hops in some)


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
    added: tuple[float, float, float],
) -> tuple[float | None, float]:
    """Return what a train hop takes beside its work, and what one at an epoch's end adds."""
    encode_byte_s, publish_byte_s, durable_byte_s = added
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
