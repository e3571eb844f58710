"""`explain_train`: what every way of training a run would take, kept before it is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.plan.cost import CandidateCost, Cluster, Estimate, Load
from mmdb.plan.described import cluster_of as described
from mmdb.plan.profile.cluster import cluster_of
from mmdb.plan.profile.profile import Profile
from mmdb.plan.profile.stamp import Machine, stamp_here
from mmdb.plan.profile.store import known_profile
from mmdb.plan.ranking import explain
from mmdb.plan.run import store
from mmdb.plan.run.costs import costs_of
from mmdb.plan.run.measured import gap_s, measured
from mmdb.plan.run.wishes import Wishes, wishes_of
from mmdb.plan.run.workload import PlannedRun, hops_like, planned_run
from mmdb.train.session import STATE_BYTES

_Q = load("explain")
#: Of a machine's memory, what its workers may take; the rest is the database's and the system's.
MEMORY_SHARE = 0.75
#: Searches that train all their candidates for all epochs.
_WHOLE = ("grid", "random")


def explain_run(
    connection: Connection, name: str, options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return a row for each way of training a run, the best first, then a row for each warning.

    A run that was trained shows what its last plan had said, beside what it took.

    Args:
        options: see docs/planning.md.
    Raises:
        RunNotFound, DatasetDropped, EmptySearch, TooFewRows, InvalidOption
    """
    wishes = wishes_of(options)
    run = planned_run(connection, name)
    if run.finished and not options:
        for outcome in connection.rows(_Q.find_outcome, name=name):
            if outcome["plan_id"] is not None:
                return store.shown(connection, outcome["plan_id"], outcome)
    return store.shown(connection, plan(connection, run, wishes, options))


def plan(
    connection: Connection, run: PlannedRun, wishes: Wishes, options: Mapping[str, Any]
) -> int:
    """Plan a run and keep what comes out; return the plan's id."""
    now = stamp_here(connection.engine, datetime.now(UTC))
    known = known_profile(connection, now)
    here = _machine(known.profile, now.machine, wishes)
    hops = hops_like(connection, run, now.machine.node, now.machine.device)
    like = measured(hops, here.nodes[0].slowdown)
    costs = costs_of(run, like, known.profile, here, gap_s(hops))
    cluster = here if wishes.cluster is None else described(wishes.cluster, here)
    estimates = explain(
        _load(run, costs.candidates),
        cluster,
        objective=wishes.objective,
        kinds=wishes.strategies,
        workers=wishes.workers,
        group=wishes.group,
        batches=wishes.batches,
        partitions=wishes.partitions,
        bytes_limit=wishes.bytes_limit,
        live_bytes=float(STATE_BYTES),
    )
    as_it_is = _chosen(estimates, run, sum(node.slots for node in cluster.nodes))
    rows = [
        store.row_of(estimate, rank, chosen=rank - 1 == as_it_is)
        for rank, estimate in enumerate(estimates, start=1)
    ]
    notes = [*known.warnings, *costs.notes, *_notes(run, cluster, estimates)]
    return store.put(
        connection,
        run.run_id,
        _kept(rows, wishes.rows),
        candidates=len(run.candidates),
        measured=costs.measured,
        options=options,
        notes=notes,
        simulated=cluster.simulated,
        assumed=known.profile.stamp is None,
    )


def _machine(profile: Profile, machine: Machine, wishes: Wishes) -> Cluster:
    """Return this machine: its cores and its memory are known, whether it was measured or not."""
    slots = machine.cores
    if wishes.cluster is None and wishes.workers is not None:
        slots = max(slots, wishes.workers)
    found = cluster_of(profile, (machine.node,), slots)
    memory = MEMORY_SHARE * machine.memory_bytes
    return replace(found, nodes=tuple(replace(n, memory_bytes=memory) for n in found.nodes))


def _load(run: PlannedRun, candidates: tuple[CandidateCost, ...]) -> Load:
    return Load(
        candidates=candidates,
        rows=run.rows,
        validation_rows=run.validation_rows,
        epochs=run.workload.epochs,
        free=run.workload.free,
    )


def _chosen(estimates: Sequence[Estimate], run: PlannedRun, slots: int) -> int | None:
    """Return the place of what `train` would do without being told how many workers."""
    work = run.workload
    at_once = len(run.rows) if work.strategy in ("model_average", "data_parallel") else 1
    workers = min(slots, max(1, len(run.candidates) * at_once))
    for place, estimate in enumerate(estimates):
        knobs = estimate.knobs
        asked = work.strategy, work.group, workers, len(run.rows), None
        if asked == (
            knobs.strategy, knobs.group, knobs.workers, knobs.partitions, knobs.batch_size,
        ):  # fmt: skip
            return place
    return None


def _kept(rows: Sequence[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Return the first rows, the best of each strategy, and what `train` would do."""
    best: dict[str, int] = {}
    for row in rows:
        best.setdefault(row["strategy"], row["rank"])
    ranks = set(best.values())
    return [r for r in rows if r["rank"] <= most or r["rank"] in ranks or r["chosen"]]


def _notes(run: PlannedRun, cluster: Cluster, estimates: Sequence[Estimate]) -> list[str]:
    notes = []
    method = run.search.get("method", "grid")
    if method not in _WHOLE:
        notes.append(
            f"The search {method!r} decides on the way what is trained: the plan is of the "
            f"{len(run.candidates)} candidates that are known, for all epochs."
        )
    if cluster.simulated:
        notes.append("The cluster was described, not measured: all of this is simulated.")
    possible = [e for e in estimates if e.feasible and e.executed]
    if not possible:
        notes.append("Nothing that mmdb executes is possible; why_not says what is in the way.")
    return notes
