"""The costs of a run's candidates: from hops like theirs, else from the work of their steps.

Where layers are frozen, features that hops read are made and read once, as the rows are that they
are of. Those that hops compute themselves are a part of each row that they visit: in measured hops
they are in already, else they take what was measured when they were settled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from statistics import fmean

from mmdb.errors import InvalidOption
from mmdb.graph.spec.factory_call import outputs_asked
from mmdb.plan.candidate_work import Built, TracedWork
from mmdb.plan.cluster import hop_s, read_row_s
from mmdb.plan.equations import straggler
from mmdb.plan.hop_history import Measured, ProfilePrediction
from mmdb.plan.machine_history import Observed
from mmdb.plan.planned_run import READ, Planned, PlannedRun, ready_s
from mmdb.plan.profile.machine_profile import MachineProfile
from mmdb.plan.step import CandidateCost
from mmdb.plan.step.corrections import Residual, features
from mmdb.plan.step.roofline import Speeds, candidate_cost, speeds_of, update_seconds
from mmdb.plan.step.step_work import FIRST_STEP_BYTES, Work
from mmdb.train.values.feature_spec import FEATURE_ROWS

#: Relative standard deviations of costs: measured, by the roofline, of steps that were timed where
#: nothing else was measured, and by an assumed profile: of ten, eight take a third to three times.
WARM, COLD, STEPS_ALONE, ASSUMED = 0.03, 0.10, 0.40, 1.0
#: Hops without which what was measured is no surer than what was computed.
FEW_HOPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCosts:
    """Costs of a run's candidates, in their order."""

    candidates: tuple[CandidateCost, ...]
    measured: int  # candidates whose costs rest on hops
    notes: tuple[str, ...]
    cold: Mapping[str, tuple[ProfilePrediction, ...]] = field(default_factory=dict)  # by cost key

    def predicted_s(self, like: str, rows: int) -> float | None:
        """Return the seconds of a step over so many rows by the profile, whatever was measured."""
        lines = self.cold.get(like)
        if not lines:
            return None
        nearest = min((one.cost for one in lines), key=lambda cost: abs(cost.batch_size - rows))
        return nearest.step_s + nearest.row_s * rows


def costs_of(
    run: PlannedRun,
    known: Mapping[str, Measured],
    profile: MachineProfile,
    seen: Observed,
    followed: Mapping[str, TracedWork] | None = None,
    residual: Residual | None = None,
) -> RunCosts:
    """Return the costs of a run's candidates.

    Args:
        known: what was measured, by cost key.
        seen: what hops have shown beside that.
        followed: what is known already of `Built.text`.
        residual: by which candidates are corrected that were not measured.
    Raises:
        InvalidOption: none of them was measured, and the work of none can be followed.
    """
    speeds = speeds_of(profile)
    built = replace(built_of(run), followed=followed or {})
    around = _around(run, profile, seen)
    found: dict[tuple[str, int], CandidateCost | str] = {}
    costs: list[CandidateCost | str] = []
    cold: dict[str, list[ProfilePrediction]] = defaultdict(list)
    for one in run.candidates:
        key = one.cost_key, one.config.batch_size
        if key not in found:
            cost, by_profile = _cost(
                one,
                built,
                speeds,
                known.get(one.cost_key),
                residual,
                has_profile=bool(profile.stamp),
            )
            if by_profile is not None and run.options.stack == 1:  # it knows of no stacks
                cold[one.cost_key].append(by_profile)
            if not isinstance(cost, str):
                process = profile.process_bytes
                memory = process + cost.memory_bytes + _held_bytes(one, built)
                cost = around(replace(cost, memory_bytes=memory))
            found[key] = cost
        costs.append(found[key])
    whole, notes = _completed(run, costs)
    measured = sum(one.cost_key in known for one in run.candidates)
    return RunCosts(
        candidates=tuple(whole),
        measured=measured,
        notes=tuple(notes),
        cold={like: tuple(lines) for like, lines in cold.items()},
    )


def built_of(run: PlannedRun) -> Built:
    """Return what decides how a run's candidates are built."""
    dataset = run.dataset
    given = dataset.input_dtype
    return Built(
        architecture=run.architecture,
        input_shape=dataset.input_shape,
        input_dtype=dict(given) if isinstance(given, dict) else given,
        outputs=outputs_asked(dataset.targets),
        factories=run.factories,
        rows=max(run.rows, default=0),
        shares_base=run.shares_base,
    )


def _cost(
    one: Planned,
    built: Built,
    speeds: Speeds,
    known: Measured | None,
    residual: Residual | None,
    *,
    has_profile: bool,
) -> tuple[CandidateCost | str, ProfilePrediction | None]:
    """Return a candidate's costs, or why they cannot be known; and those by the roofline alone."""
    work = built.work(one.config, one.frozen)
    if isinstance(work, str):
        return (work if known is None else _warm(_bare(one, known), known, None)), None
    tail = _cold(work, speeds, one, built, COLD if has_profile else ASSUMED)
    cold = _with_frozen(tail, one)
    said = ProfilePrediction(
        candidate_id=one.candidate_id,
        cost=cold,
        features=features(work, speeds, one.config.batch_size),
        is_plain=_is_plain(one),
    )
    if known is None:
        corrected = residual.corrected(tail, said.features) if residual else tail
        return _with_frozen(corrected, one), said
    warm = _warm(cold, known, (cold.step_s, cold.row_s))
    if known.build_s is None and not has_profile:  # the steps are known, and nothing else
        warm = replace(warm, uncertainty=STEPS_ALONE)
    if "adapted" in built.architecture:  # with a base and without one states differ, steps do not
        warm = replace(warm, state_bytes=cold.state_bytes)
    return warm, said


def _cold(
    work: Work, speeds: Speeds, one: Planned, built: Built, uncertainty: float
) -> CandidateCost:
    """Return costs by the roofline; a step takes in all batches that are accumulated for it."""
    size, times = one.config.batch_size, one.config.accumulate
    cost = candidate_cost(work, speeds, size, uncertainty=uncertainty)
    update = update_seconds(work, speeds)
    state, part = cost.state_bytes, one.frozen
    is_adapted_tail = part and part.tail_shape is not None and part.transfer.adapter is not None
    if built.shares_base or is_adapted_tail:
        state -= work.parameter_bytes - work.gradient_bytes  # what is adapted is in no state
    return replace(
        cost,
        state_bytes=state,
        batch_size=size * times,
        step_s=max(0.0, cost.step_s - update) * times + update,
        memory_row_bytes=cost.memory_row_bytes / times,
    )


def _is_plain(one: Planned) -> bool:
    """Return whether hops do what the profile says steps do, and nothing else."""
    config, part = one.config, one.frozen
    if part is not None and part.source not in (READ, "whole"):
        return False
    return config.amp is None and not config.augment and config.accumulate == 1


def _with_frozen(cost: CandidateCost, one: Planned) -> CandidateCost:
    """Return costs of hops that compute the features of their rows, too."""
    if one.frozen is None or not one.frozen.row_s:
        return cost
    row_s = one.frozen.row_s
    return replace(cost, row_s=cost.row_s + row_s, validation_row_s=cost.validation_row_s + row_s)


def _held_bytes(one: Planned, built: Built) -> float:
    """Return what a process holds for a candidate beside what trains."""
    part = one.frozen
    if part is None or part.shape is None or not part.is_computed:
        return 0.0
    if part.source == "streamed":
        return built.held_bytes(one.config, one.config.batch_size)
    return built.held_bytes(one.config, FEATURE_ROWS) + 4.0 * built.rows * prod(part.shape)


def _bare(one: Planned, known: Measured) -> CandidateCost:
    """Return costs of a candidate whose work cannot be followed."""
    return CandidateCost(
        step_s=0.0,
        row_s=0.0,
        batch_size=one.config.batch_size * one.config.accumulate,
        state_bytes=known.state_bytes,
        gradient_bytes=known.state_bytes / 3,  # weights, of which Adam keeps two more
        memory_bytes=FIRST_STEP_BYTES + 2 * known.state_bytes,
    )


def _warm(cost: CandidateCost, known: Measured, line: tuple[float, float] | None) -> CandidateCost:
    """Return costs with what was measured in place of what was computed."""
    step_s, row_s = known.line(line, cost.batch_size)
    factor = row_s / line[1] if line and line[1] else 1.0
    validation = known.validation_row_s
    if validation is None:
        validation = cost.validation_row_s * factor if line else row_s / 3
    return replace(
        cost,
        step_s=step_s,
        row_s=row_s,
        validation_row_s=validation,
        state_bytes=float(known.state_bytes),
        build_s=known.build_s or 0.0,
        exchanges=_exchanges(known, step_s, row_s),
        layers=tuple(
            layer._replace(forward_row_s=layer.forward_row_s * factor) for layer in cost.layers
        ),
        deviation=known.deviation,
        uncertainty=WARM if known.hops >= FEW_HOPS else COLD,
    )


def _exchanges(known: Measured, step_s: float, row_s: float) -> tuple[tuple[int, float], ...]:
    """Return what steps of groups took beyond what their members compute, by the group's size."""
    found: dict[int, list[float]] = defaultdict(list)
    for one in known.rounds:
        compute_s = step_s + row_s * one.rows / one.members
        late = float(straggler(one.members, known.deviation))
        found[one.members].append(max(0.0, one.step_s - compute_s * late))
    return tuple((members, fmean(seconds)) for members, seconds in sorted(found.items()))


def _around(
    run: PlannedRun, profile: MachineProfile, seen: Observed
) -> Callable[[CandidateCost], CandidateCost]:
    """Return what gives any candidate what a hop takes beside its own work."""
    read = seen.read_row_s
    if read is None:
        read = read_row_s(profile, run.row_bytes, pixels=run.has_pixels)
    read += ready_s(run.shared) / max(1, sum(run.rows) + run.validation_rows)
    hop = hop_s(profile) if seen.hop_s is None else seen.hop_s
    return partial(replace, read_row_s=read, hop_s=hop, durable_s=seen.durable_s)


def _completed(
    run: PlannedRun, costs: Sequence[CandidateCost | str]
) -> tuple[list[CandidateCost], list[str]]:
    """Return costs of all candidates: those that cannot be known are taken to be the dearest."""
    known = [cost for cost in costs if isinstance(cost, CandidateCost)]
    lost = [
        (one.ordinal, cost)
        for one, cost in zip(run.candidates, costs, strict=True)
        if isinstance(cost, str)
    ]
    if not lost:
        return known, []
    ordinal, reason = lost[0]
    if not known:
        raise InvalidOption(
            f"What candidate {ordinal} of run {run.name!r} costs cannot be known: {reason}.",
            hint="Do one hop of it, mmdb.train_hop(part_id, candidate_id); then it is measured.",
        )
    dearest = max(known, key=lambda cost: cost.step_s + cost.row_s * cost.batch_size)
    others = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    note = f"Candidate {ordinal}{others} is taken to cost as much as the dearest: {reason}."
    return [cost if isinstance(cost, CandidateCost) else dearest for cost in costs], [note]
