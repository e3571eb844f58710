"""Costs of a run's candidates: from hops like theirs, else from the work of their steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mmdb.errors import InvalidOption
from mmdb.graph.sizes import outputs_asked
from mmdb.plan.cost import CandidateCost, Cluster
from mmdb.plan.profile.cluster import hop_s, read_row_s
from mmdb.plan.profile.profile import Profile
from mmdb.plan.run.built import Built, Recorded
from mmdb.plan.run.measured import Measured
from mmdb.plan.run.workload import Planned, PlannedRun
from mmdb.plan.work.roofline import Speeds, candidate_cost, update_seconds
from mmdb.plan.work.speeds import speeds_of
from mmdb.plan.work.work import Work

#: A worker's process before it holds anything of a candidate: Python, torch, the engine's driver.
PROCESS_BYTES = 340e6
#: Relative standard deviations of costs: measured, by the roofline, and by an assumed profile.
WARM, COLD, ASSUMED = 0.03, 0.10, 0.40
#: Hops without which what was measured is no surer than what was computed.
FEW_HOPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of a run's candidates, in their order."""

    candidates: tuple[CandidateCost, ...]
    measured: int  # candidates whose costs rest on hops
    notes: tuple[str, ...]
    cold: Mapping[str, tuple[CandidateCost, ...]] = field(default_factory=dict)  # by likeness

    def predicted_s(self, like: str, rows: int) -> float | None:
        """Return the seconds of a step over so many rows by the profile, whatever was measured."""
        lines = self.cold.get(like)
        if not lines:
            return None
        nearest = min(lines, key=lambda cost: abs(cost.batch_size - rows))
        return nearest.step_s + nearest.row_s * rows


def costs_of(
    run: PlannedRun,
    known: Mapping[str, Measured],
    profile: Profile,
    cluster: Cluster,
    gap_s: float = 0.0,
    followed: Mapping[str, Recorded] | None = None,
) -> Costs:
    """Return the costs of a run's candidates.

    Args:
        known: what was measured, by likeness.
        gap_s: measured, between two hops of a worker.
        followed: what is known already of `Built.text`.
    Raises:
        InvalidOption: none of them was measured, and the work of none can be followed.
    """
    speeds = speeds_of(profile)
    built = replace(built_of(run), followed=followed or {})
    reading = _reading(run, known.values(), profile)
    hopping = _hopping(known.values(), profile, cluster) + gap_s
    found: dict[tuple[str, int], CandidateCost | str] = {}
    costs: list[CandidateCost | str] = []
    cold: dict[str, list[CandidateCost]] = defaultdict(list)
    for one in run.candidates:
        key = one.like, one.config.batch_size
        if key not in found:
            cost, by_profile = _cost(one, built, speeds, known.get(one.like), bool(profile.stamp))
            if by_profile is not None:
                cold[one.like].append(by_profile)
            if not isinstance(cost, str):
                cost = replace(cost, read_row_s=reading, hop_s=hopping)
            found[key] = cost
        costs.append(found[key])
    whole, notes = _completed(run, costs)
    measured = sum(one.like in known for one in run.candidates)
    return Costs(
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
    )


def _cost(
    one: Planned, built: Built, speeds: Speeds, known: Measured | None, has_profile: bool
) -> tuple[CandidateCost | str, CandidateCost | None]:
    """Return a candidate's costs, or why they cannot be known; and those by the roofline alone."""
    work = built.work(one.config)
    if isinstance(work, str):
        return (work if known is None else _warm(_bare(one, known), known, None)), None
    cold = _cold(work, speeds, one, COLD if has_profile else ASSUMED)
    if known is None:
        return cold, cold
    warm = _warm(cold, known, (cold.step_s, cold.row_s))
    if known.overhead_s is None and not has_profile:  # the steps are known, and nothing else
        warm = replace(warm, uncertainty=ASSUMED)
    return warm, cold


def _cold(work: Work, speeds: Speeds, one: Planned, uncertainty: float) -> CandidateCost:
    """Return costs by the roofline; a step takes in all batches that are accumulated for it."""
    size, times = one.config.batch_size, one.config.accumulate
    cost = candidate_cost(work, speeds, size, uncertainty=uncertainty)
    update = update_seconds(work, speeds)
    return replace(
        cost,
        batch_size=size * times,
        step_s=max(0.0, cost.step_s - update) * times + update,
        memory_bytes=PROCESS_BYTES + cost.memory_bytes,
        memory_row_bytes=cost.memory_row_bytes / times,
    )


def _bare(one: Planned, known: Measured) -> CandidateCost:
    """Return costs of a candidate whose work cannot be followed."""
    return CandidateCost(
        step_s=0.0,
        row_s=0.0,
        batch_size=one.config.batch_size * one.config.accumulate,
        state_bytes=known.state_bytes,
        gradient_bytes=known.state_bytes / 3,  # weights, of which Adam keeps two more
        memory_bytes=PROCESS_BYTES + 2 * known.state_bytes,
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
        layers=tuple(
            layer._replace(forward_row_s=layer.forward_row_s * factor) for layer in cost.layers
        ),
        deviation=known.deviation,
        uncertainty=WARM if known.hops >= FEW_HOPS else COLD,
    )


def _reading(run: PlannedRun, known: Iterable[Measured], profile: Profile) -> float:
    seen = [one.read_row_s for one in known if one.read_row_s is not None]
    if seen:
        return float(sum(seen) / len(seen))
    return read_row_s(profile, run.row_bytes, pixels=run.has_pixels)


def _hopping(known: Iterable[Measured], profile: Profile, cluster: Cluster) -> float:
    seen = [  # what hops cost beside the encoding of their state, which a plan adds by itself
        max(0.0, one.overhead_s - one.state_bytes * cluster.encode_byte_s)
        for one in known
        if one.overhead_s is not None
    ]
    return float(sum(seen) / len(seen)) if seen else hop_s(profile)


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
