"""Whose turn it is: the rules by which a hop may start. Pure; rows in, values out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mmdb.db.connection import Row
from mmdb.errors import OutOfTurn
from mmdb.train.schedule import STRATEGIES, TrainingProgress, Workload, next_part
from mmdb.train.values.seeds import VALIDATION, hop_seed
from mmdb.train.values.spec import HopStep


def ordinal_of(part: Row) -> int:
    """Return a partition's ordinal in its candidate's order; VALIDATION for the held-out slice."""
    return VALIDATION if part["role"] == "validation" else int(part["ordinal"])


def lock_key(candidate_id: int, part_id: int, *, is_alone: bool) -> int:
    """Return the key of the lock that keeps a second session from a hop.

    The hops of an averaged epoch run side by side, so each has its own; that two candidates may
    come to the same key costs a short wait.
    """
    return candidate_id if is_alone else candidate_id * 1_000_003 + part_id


def workload(run: Row, parts: Sequence[Row], candidates: int = 1) -> Workload:
    """Return the workload of a run.

    Args:
        run: a row with its run_seed, epochs and options, its strategy, `mop` without one, and the
            group_size that was decided on, if any.
        parts: the partitions of its dataset.
    """
    options, strategy = json.loads(run["options"]), run.get("strategy")
    if strategy not in STRATEGIES:
        strategy = "mop"  # as `auto` is trained until it is decided how
    return Workload(
        candidates=candidates,
        partitions=sum(p["role"] == "train" for p in parts),
        epochs=run["epochs"],
        seed=run["run_seed"],
        validates=any(p["role"] == "validation" for p in parts),
        free=options.get("order") == "free",
        strategy=strategy,
        group=_group(run, options) if strategy == "data_parallel" else 1,
        first=options.get("first_candidate", 0),
    )


def _group(run: Row, options: Mapping[str, Any]) -> int:
    return int(run.get("group_size") or options.get("group") or 2)


def progress(hops: Sequence[Row], parts: Sequence[Row]) -> TrainingProgress:
    """Return how far a candidate is.

    Args:
        hops: its hops in order (part_id, epoch), at least all those of its last epoch.
    """
    if not hops:
        return TrainingProgress()
    epoch = hops[-1]["epoch"]
    ordinals = {p["part_id"]: ordinal_of(p) for p in parts}
    visited = tuple(ordinals[h["part_id"]] for h in hops if h["epoch"] == epoch)
    if len(visited) == len(parts):
        return TrainingProgress(epoch=epoch + 1)
    return TrainingProgress(epoch=epoch, visited=visited)


def check_turn(
    candidate: Row,
    load: Workload,
    parts: Sequence[Row],
    part: Row,
    epoch: int,
    now: TrainingProgress,
) -> None:
    """Check that a candidate may visit `part` in `epoch` next.

    Raises:
        OutOfTurn: with the hop whose turn it is in the hint.
    """
    name = f"candidate {candidate['candidate_id']}"
    if now.epoch >= load.epochs:
        raise OutOfTurn(
            f"{name.capitalize()} has done all its {load.epochs} epochs.",
            hint="Create a run with more epochs.",
        )
    expected, given = next_part(load, candidate["ordinal"], now), ordinal_of(part)
    free = load.free and expected != VALIDATION
    allowed = given == expected or (free and given != VALIDATION and given not in now.visited)
    if epoch != now.epoch or not allowed:
        turn = next(p["part_id"] for p in parts if ordinal_of(p) == expected)
        raise OutOfTurn(
            f"It is not the turn of partition {part['part_id']}, epoch {epoch}, for {name}.",
            hint=f"Its next hop is epoch {now.epoch} on partition {turn}.",
        )


def next_step(
    candidate: Row,
    load: Workload,
    part: Row,
    now: TrainingProgress,
    done: int,
    publish: bool = True,
) -> HopStep:
    """Return the visit to `part` that comes next; `done` hops came before."""
    ordinal = ordinal_of(part)
    return HopStep(
        part_id=part["part_id"],
        partition=part["content_hash"].hex(),
        epoch=now.epoch,
        ordinal=done,
        seed=hop_seed(load.seed, load.first + candidate["ordinal"], now.epoch, ordinal),
        validates=ordinal == VALIDATION,
        ends_epoch=ordinal != VALIDATION and len(now.visited) == load.partitions - 1,
        publishes=publish,
    )


def next_steps(
    candidate: Row,
    parts: Sequence[Row],
    chosen: Sequence[Row],
    epoch: int,
    now: TrainingProgress,
    done: int,
    publish: bool,
) -> tuple[HopStep, ...]:
    """Return the visits to `chosen` that come next: one, or those of a group's round.

    Args:
        candidate: a row of `find_candidate`.
        done: ordinal of the next hop; where an epoch's hops run side by side, their partitions
            decide it.
    Raises:
        OutOfTurn: it is another hop's turn.
    """
    load = workload(candidate, parts)
    averages = candidate["strategy"] == "model_average"
    if averages:
        load = replace(load, free=True, strategy="mop")  # merges have rows of their own
    steps: list[HopStep] = []
    for k, part in enumerate(chosen):
        check_turn(candidate, load, parts, part, epoch, now)
        step = next_step(candidate, load, part, now, done + k, publish or averages)
        if averages:
            place = load.partitions if step.validates else int(part["ordinal"])
            ordinal = epoch * len(parts) + place
            step = replace(step, ordinal=ordinal, ends_epoch=not step.validates)
        steps.append(step)
        now = replace(now, visited=(*now.visited, ordinal_of(part)))
    return tuple(replace(step, ends_epoch=steps[-1].ends_epoch) for step in steps)
