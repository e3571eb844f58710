"""`explain_train`: what every way of training a run would take, kept before it is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import DatasetDropped, EmptySearch, MmdbError, stops_the_caller
from mmdb.plan.checks import MOST_SLOTS
from mmdb.plan.cost import Cluster, Estimate
from mmdb.plan.described import cluster_of as described
from mmdb.plan.profile.cluster import cluster_of
from mmdb.plan.profile.profile import Profile
from mmdb.plan.profile.stamp import Machine, stamp_here
from mmdb.plan.profile.store import known_profile
from mmdb.plan.run import changed, residuals, store, told
from mmdb.plan.run.built import Recorded
from mmdb.plan.run.choice import chosen
from mmdb.plan.run.costs import Costs, costs_of
from mmdb.plan.run.drift import drifted
from mmdb.plan.run.estimates import estimates_of
from mmdb.plan.run.measured import measured
from mmdb.plan.run.observed import Observed, observed
from mmdb.plan.run.probe import Probe, time_steps
from mmdb.plan.run.wishes import Wishes, wishes_of
from mmdb.plan.run.workload import (
    PlannedRun,
    hops_like,
    paces_on,
    planned_run,
    steps_like,
    turns_on,
)

Compute = Callable[[Callable[[], Costs]], Costs]
Probing = Callable[[], AbstractContextManager[Probe]]
#: Called with a candidate: settles how features come to it and the others of its run.
Settle = Callable[[int], object]

_Q = load("explain")
#: Of a machine's memory, what its workers may take; the rest is the database's and the system's.
MEMORY_SHARE = 0.75
#: Searches that train all their candidates for all epochs.
_WHOLE = ("grid", "random")


def explain_run(
    connection: Connection,
    name: str,
    options: Mapping[str, Any],
    *,
    compute: Compute = lambda work: work(),
    probing: Probing | None = None,
    settle: Settle | None = None,
) -> list[dict[str, Any]]:
    """Return a row for each way of training a run, the best first, then a row for each note.

    A run that was trained shows what its last plan had said, beside what it took.

    Args:
        options: see docs/planning.md.
        compute, probing: as of `plan`.
        settle: what a run with frozen layers shares, before it is planned.
    Raises:
        RunNotFound, DatasetDropped, EmptySearch, TooFewRows, InvalidOption
    """
    wishes = wishes_of(options)
    try:
        run = planned_run(connection, name)
    except (DatasetDropped, EmptySearch) as error:
        if not options and (rows := _outcome(connection, name, [error.message])):
            return rows
        raise
    if run.finished and not options and (rows := _outcome(connection, name)):
        return rows
    run, said = settled(connection, run, settle)
    plan_id = plan(
        connection, run, wishes, options, compute=compute, probing=probing, said_before=said
    )
    return store.shown(connection, plan_id)


def settled(
    connection: Connection, run: PlannedRun, settle: Settle | None
) -> tuple[PlannedRun, list[str]]:
    """Return a run of which it is settled what its candidates share; or why it is not."""
    if settle is None or run.finished or not run.unsettled:
        return run, []
    try:
        settle(run.unsettled[0].candidate_id)
    except MmdbError as error:  # training meets it, too, and says whose it is
        if stops_the_caller(error):
            raise
        return run, [f"What is frozen could not be looked at: {error.message}"]
    return planned_run(connection, run.name), []


def _outcome(connection: Connection, name: str, notes: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return what was planned of a trained run beside what it took; nothing if it may go on."""
    found = connection.rows(_Q.find_outcome, name=name)
    if not found or found[0]["plan_id"] is None:
        return []
    outcome = found[0]
    (progress,) = connection.rows(_Q.find_progress, run_id=outcome["run_id"])
    if progress["untouched"] and not notes:
        return []
    notes = [*notes, *changed.of_outcome(outcome, progress)]
    return store.shown(connection, outcome["plan_id"], outcome, notes)


def plan(
    connection: Connection,
    run: PlannedRun,
    wishes: Wishes,
    options: Mapping[str, Any],
    *,
    compute: Compute = lambda work: work(),
    followed: Mapping[str, Recorded] | None = None,
    probing: Probing | None = None,
    said_before: Sequence[str] = (),
) -> int:
    """Plan a run and keep what comes out; return the plan's id.

    Args:
        compute: runs what touches no database, and builds the run's modules.
        followed: those of them that are followed already; see `costs_of`.
        probing: where steps are timed, if it is wished.
        said_before: notes that the plan is to have.
    """
    now = stamp_here(connection.engine, datetime.now(UTC))
    known = known_profile(connection, now)
    here = _machine(known.profile, now.machine, wishes)
    hops = hops_like(connection, run, now)
    seen = observed(
        hops,
        turns_on(connection, now),
        paces_on(connection, now),
        here.nodes[0].slowdown,
        partitions=len(run.rows),
        encode_byte_s=here.encode_byte_s,
        publish_byte_s=here.publish_byte_s,
        durable_byte_s=here.publish_byte_s + here.checkpoint_byte_s,
    )
    here = _as_seen(here, seen)
    slowdown = seen.slowdown
    like = measured([*hops, *steps_like(connection, run, now)], slowdown, here.load_byte_s)
    missed: list[str] = []
    if wishes.probe_s and probing and any(one.like not in like for one in run.candidates):
        with probing() as probe:
            missed = time_steps(connection, run, like, probe, wishes.probe_s, now.machine.node)
        like = measured([*hops, *steps_like(connection, run, now)], slowdown, here.load_byte_s)
    stamp = known.profile.stamp
    is_cold = any(one.like not in like for one in run.candidates)
    residual = residuals.residual_of(connection, stamp, slowdown) if is_cold else None
    costs = compute(lambda: costs_of(run, like, known.profile, seen, followed, residual))
    residuals.keep(connection, stamp, costs.cold)
    cluster = here if wishes.cluster is None else described(wishes.cluster, here)
    estimates, said = estimates_of(connection, run, wishes, cluster, costs, now)
    slots = wishes.workers or sum(node.slots for node in cluster.nodes)
    as_it_is = chosen(estimates, run, slots) if wishes.target is None else None
    rows = [
        store.row_of(estimate, rank, chosen=rank - 1 == as_it_is)
        for rank, estimate in enumerate(estimates, start=1)
    ]
    (progress,) = connection.rows(_Q.find_progress, run_id=run.run_id)
    notes = [
        *told.notes(run.shared.values(), [one.ordinal for one in run.unsettled]),
        *said_before,
        *known.warnings,
        *drifted(hops, known.profile, slowdown, predicted=costs.predicted_s),
        *missed,
        *residuals.notes(residual, costs.cold, like),
        *costs.notes,
        *changed.of_plan(progress),
        *said,
        *_notes(run, cluster, estimates),
    ]
    return store.put(
        connection,
        run.run_id,
        _kept(rows, wishes.rows),
        candidates=len(run.candidates),
        measured=costs.measured,
        options=options,
        notes=notes,
        simulated=cluster.simulated,
        assumed=stamp is None,
    )


def _machine(profile: Profile, machine: Machine, wishes: Wishes) -> Cluster:
    """Return this machine: its cores and its memory are known, whether it was measured or not."""
    slots = machine.cores
    if wishes.cluster is None and wishes.workers is not None:
        slots = max(slots, min(wishes.workers, MOST_SLOTS))
    found = cluster_of(profile, (machine.node,), slots)
    memory = MEMORY_SHARE * machine.memory_bytes
    return replace(found, nodes=tuple(replace(n, memory_bytes=memory) for n in found.nodes))


def _as_seen(cluster: Cluster, seen: Observed) -> Cluster:
    """Return a cluster whose nodes are as their hops have shown them."""
    nodes = tuple(replace(node, slowdown=seen.slowdown) for node in cluster.nodes)
    return replace(cluster, nodes=nodes, gap_s=seen.gap_s, late_s=seen.late_s)


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
    if not estimates:
        notes.append(
            f"Nothing of what was asked can be done with {len(run.candidates)} candidates and "
            f"{len(run.rows)} partitions."
        )
    elif not any(e.feasible and e.executed for e in estimates):
        notes.append("Nothing that mmdb executes is possible; why_not says what is in the way.")
    return notes
