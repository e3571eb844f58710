"""What a warm-up has measured: what baselines are given, as the planner is given its hops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmdb.api import Database
from mmdb.bench.train import makespan
from mmdb.db.queries import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """One epoch of a search by `mop`.

    Attributes:
        half_s: until half of the hops were done.
        compute_s: of each candidate's train hops, by its ordinal.
        other_s: worker-seconds of hops beside these.
        state_bytes: of each candidate, by its ordinal.
    """

    workers: int
    seconds: float
    half_s: float
    compute_s: Mapping[int, float]
    other_s: float
    state_bytes: Mapping[int, int]


def warmed(db: Database, run: str, workers: int) -> Warmed:
    """Return what a run of one epoch has measured."""
    hops = db.connection.rows(load("bench_hops").timeline, prefix=run)
    ended = sorted(hops, key=lambda hop: hop["finished_at"])
    trained = [hop for hop in hops if hop["role"] == "train"]
    candidates = sorted({hop["candidate"] for hop in trained})
    compute = {
        c: sum(hop["compute_s"] for hop in trained if hop["candidate"] == c) for c in candidates
    }
    return Warmed(
        workers=workers,
        seconds=makespan(hops),
        half_s=makespan(ended[: max(1, len(ended) // 2)]),
        compute_s=compute,
        other_s=sum(hop["total_s"] for hop in hops) - sum(compute.values()),
        state_bytes={
            c: max(hop["state_bytes"] for hop in trained if hop["candidate"] == c)
            for c in candidates
        },
    )
