"""`explain_train`: what every way of training a run would take, kept before it is trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import DatasetDropped, EmptySearch, MmdbError, NoWorkerLogin, stops_the_caller
from mmdb.plan import hop_history
from mmdb.plan.candidate_costs import RunCosts, costs_of
from mmdb.plan.candidate_work import TracedWork
from mmdb.plan.cluster import cluster_of as described
from mmdb.plan.cluster import measured_cluster
from mmdb.plan.cost import MOST_SLOTS, PHASES, Cluster, Estimate
from mmdb.plan.estimates import chosen, estimates_of
from mmdb.plan.hop_history import measured, own_first
from mmdb.plan.machine_history import drifted, observed
from mmdb.plan.notes import feature_notes, outcome_notes, progress_notes
from mmdb.plan.plan_options import PlanOptions, plan_options
from mmdb.plan.planned_run import PlannedRun, hops_like, paces_on, planned_run, steps_like, turns_on
from mmdb.plan.profile.machine_profile import MachineProfile, known_profile
from mmdb.plan.profile.measurements import Machine, stamp_here
from mmdb.plan.step_probe import StepProbe, time_steps

_Q = load("explain")
#: Columns of a row for which a note has nothing.
COLUMNS = (
    "rank", "strategy", "workers", "group_size", "t_p10", "t_p50", "t_p90", "lower_bound",
    *(f"{phase}_s" for phase in PHASES), "bytes_moved", "peak_memory", "feasible", "why_not",
    "chosen", "executed", "simulated", "assumed", "knobs",
)  # fmt: skip
#: Seconds in which steps are timed, unless asked otherwise, where nothing was ever measured.
FIRST_PROBE_S = 2.0
#: What a bigint holds.
MOST_BYTES = 2**63 - 1
#: What a run took in the end; of the row that says how it was trained.
ACTUAL = ("actual_s", "actual_compute_s", "actual_read_s", "actual_hop_s", "actual_validation_s",
          "actual_idle_s")  # fmt: skip


def row_of(estimate: Estimate, rank: int, *, chosen: bool) -> dict[str, Any]:
    """Return an estimate as a row of the table."""
    knobs = estimate.knobs
    others = {
        "policy": knobs.policy,
        "per_node": knobs.per_node,
        "servers": knobs.servers,
        "micro_batches": knobs.micro_batches,
        "exact": estimate.exact,
    }
    return {
        "rank": rank,
        "strategy": knobs.strategy,
        "workers": knobs.workers,
        "group_size": knobs.group,
        "partitions": knobs.partitions,
        "batch_size": knobs.batch_size,
        "knobs": json.dumps(others),
        "chosen": chosen,
        "t_p10": estimate.p10_s,
        "t_p50": estimate.p50_s,
        "t_p90": estimate.p90_s,
        "lower_bound": estimate.lower_bound_s,
        **{f"{phase}_s": getattr(estimate, f"{phase}_s") for phase in PHASES},
        "bytes_moved": min(round(estimate.bytes_moved), MOST_BYTES),
        "peak_memory": min(round(estimate.memory_bytes), MOST_BYTES),
        "hops": estimate.hops,
        "feasible": estimate.feasible,
        "why_not": estimate.why_not or None,
        "executed": estimate.executed,
    }


def put(
    connection: Connection,
    run_id: int,
    rows: Sequence[Mapping[str, Any]],
    *,
    candidates: int,
    measured: int,
    options: Mapping[str, Any],
    notes: Sequence[str],
    simulated: bool,
    assumed: bool,
) -> int:
    """Keep a plan, whole or not at all; return its plan_id."""
    with connection.transaction():
        (added,) = connection.rows(
            _Q.add_plan,
            run_id=run_id,
            candidates=candidates,
            measured=measured,
            options=json.dumps(options),
            notes=json.dumps(list(notes)),
            simulated=simulated,
            assumed=assumed,
        )
        plan_id = int(added["plan_id"])
        connection.run_many(_Q.add_estimate, [{**row, "plan_id": plan_id} for row in rows])
    return plan_id


def shown(
    connection: Connection,
    plan_id: int,
    outcome: Row | None = None,
    others: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return a plan's rows, the best first, and then a row for each of its notes.

    Args:
        outcome: what the run took, shown in the row that says how it was trained.
        others: notes that were not kept.
    """
    found = connection.rows(_Q.find_estimates, plan_id=plan_id)
    nothing = dict.fromkeys(ACTUAL)
    rows = []
    for row in found:
        is_it = outcome is not None and (outcome["plan_id"], outcome["rank"]) == (
            plan_id,
            row["rank"],
        )
        took = {name: outcome[name] for name in ACTUAL} if outcome and is_it else nothing
        rows.append({**{name: row[name] for name in COLUMNS}, "note": None, **took})
    (kept,) = connection.rows(_Q.find_notes, plan_id=plan_id)
    notes = [*others, *json.loads(kept["notes"])]
    rows += [{**dict.fromkeys(COLUMNS), "note": note, **nothing} for note in notes]
    return rows


Compute = Callable[[Callable[[], RunCosts]], RunCosts]
Probing = Callable[[], AbstractContextManager[StepProbe]]
#: Called with a candidate: settles how features come to it and the others of its run.
Settle = Callable[[int], object]
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
    checked = plan_options(options)
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
        connection, run, checked, options, compute=compute, probing=probing, said_before=said
    )
    return shown(connection, plan_id)


def settled(
    connection: Connection, run: PlannedRun, settle: Settle | None
) -> tuple[PlannedRun, list[str]]:
    """Settle what the candidates of a run share; return the run, and why it is not settled."""
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
    notes = [*notes, *outcome_notes(outcome, progress)]
    return shown(connection, outcome["plan_id"], outcome, notes)


def plan(
    connection: Connection,
    run: PlannedRun,
    options: PlanOptions,
    asked: Mapping[str, Any],
    *,
    compute: Compute = lambda work: work(),
    followed: Mapping[str, TracedWork] | None = None,
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
    here = _machine(known.profile, now.machine, options)
    hops = hop_history.with_busy(hops_like(connection, run, now))
    own, turns = own_first(run, hops, turns_on(connection, now))
    see = partial(
        observed,
        turns=turns,
        paces=paces_on(connection, now),
        slowdown=here.nodes[0].slowdown,
        partitions=len(run.rows),
        encode_byte_s=here.encode_byte_s,
        publish_byte_s=here.publish_byte_s,
        durable_byte_s=here.publish_byte_s + here.checkpoint_byte_s,
    )
    seen = see(own)
    if seen.hop_s is None:  # no candidate of the run has done an epoch yet
        seen = see(hops)
    slowdown = seen.slowdown
    nodes = tuple(replace(node, slowdown=slowdown) for node in here.nodes)
    here = replace(here, nodes=nodes, gap_s=seen.gap_s, late_s=seen.late_s)
    like = measured([*own, *steps_like(connection, run, now)], slowdown, here.load_byte_s)
    missed: list[str] = []
    stamp = known.profile.stamp
    probe_s = options.probe_s
    if probe_s is None:
        probe_s = FIRST_PROBE_S if stamp is None and options.cluster is None else 0.0
    if probe_s and probing and any(one.cost_key not in like for one in run.candidates):
        try:
            with probing() as probe:
                missed = time_steps(connection, run, like, probe, probe_s, now.machine.node)
        except NoWorkerLogin:
            if options.probe_s:
                raise
        like = measured([*own, *steps_like(connection, run, now)], slowdown, here.load_byte_s)
    is_cold = any(one.cost_key not in like for one in run.candidates)
    residual = hop_history.residual_of(connection, stamp, slowdown) if is_cold else None
    costs = compute(lambda: costs_of(run, like, known.profile, seen, followed, residual))
    hop_history.keep(connection, stamp, costs.cold)
    cluster = here if options.cluster is None else described(options.cluster, here)
    estimates, said = estimates_of(connection, run, options, cluster, costs, now)
    slots = options.workers or sum(node.slots for node in cluster.nodes)
    as_it_is = chosen(estimates, run, slots) if options.target is None else None
    rows = [
        row_of(estimate, rank, chosen=rank - 1 == as_it_is)
        for rank, estimate in enumerate(estimates, start=1)
    ]
    (progress,) = connection.rows(_Q.find_progress, run_id=run.run_id)
    notes = [
        *feature_notes(run.shared.values(), [one.ordinal for one in run.unsettled]),
        *said_before,
        *known.warnings,
        *drifted(hops, known.profile, slowdown, predicted=costs.predicted_s),
        *missed,
        *hop_history.residual_notes(residual, costs.cold, like),
        *costs.notes,
        *progress_notes(progress),
        *said,
        *_notes(run, cluster, estimates),
    ]
    return put(
        connection,
        run.run_id,
        _kept(rows, options.rows),
        candidates=len(run.candidates),
        measured=costs.measured,
        options=asked,
        notes=notes,
        simulated=cluster.simulated,
        assumed=stamp is None and (seen.hop_s is None or costs.measured < len(run.candidates)),
    )


def _machine(profile: MachineProfile, machine: Machine, options: PlanOptions) -> Cluster:
    """Return this machine: its cores and its memory are known, whether it was measured or not."""
    slots = machine.cores
    if options.cluster is None and options.workers is not None:
        slots = max(slots, min(options.workers, MOST_SLOTS))
    return measured_cluster(profile, (machine.node,), slots, machine)


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
    if run.options.stack > 1:
        notes.append(
            f"Up to {run.options.stack} candidates of one shape train in one pass; a hop's seconds "
            "are its share of a pass where such steps were measured, else those of one by one."
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
