"""Whose turn it is, said from rows alone."""

from __future__ import annotations

from typing import Any

import pytest

from mmdb.errors import OutOfTurn
from mmdb.train.hops.turn import check_turn, next_step, ordinal_of, progress, workload
from mmdb.train.schedule import TrainingProgress
from mmdb.train.values.seeds import VALIDATION, hop_seed, visit_order

PARTITIONS, EPOCHS, SEED = 3, 2, 5
RUN = {"run_seed": SEED, "epochs": EPOCHS, "options": "{}"}
FREE = RUN | {"options": '{"order": "free"}'}
CANDIDATE = {"candidate_id": 40, "ordinal": 1}


def parts_of(*, validates: bool = True) -> list[dict[str, Any]]:
    train: list[dict[str, Any]] = [
        {"part_id": 100 + k, "ordinal": k, "role": "train", "content_hash": bytes([k])}
        for k in range(PARTITIONS)
    ]
    held_out = {"part_id": 200, "ordinal": 0, "role": "validation", "content_hash": b"\xff"}
    return [*train, held_out] if validates else train


def walk(run: dict[str, Any], parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the hops of a candidate that goes where it may go first, to the end."""
    hops: list[dict[str, Any]] = []
    load = workload(run, parts)
    while (now := progress(hops, parts)).epoch < EPOCHS:
        (part,) = allowed(run, parts, now)[:1]
        step = next_step(CANDIDATE, load, part, now, len(hops), True)
        assert step.ordinal == len(hops)
        hops.append({"part_id": part["part_id"], "epoch": now.epoch, "ends": step.ends_epoch})
    return hops


def allowed(
    run: dict[str, Any], parts: list[dict[str, Any]], now: TrainingProgress
) -> list[dict[str, Any]]:
    found = []
    for part in parts:
        try:
            check_turn(CANDIDATE, workload(run, parts), parts, part, now.epoch, now)
        except OutOfTurn:
            continue
        found.append(part)
    return found


@pytest.mark.parametrize("validates", [True, False])
@pytest.mark.parametrize("run", [RUN, FREE])
def test_following_the_turn_visits_everything_once_an_epoch(
    run: dict[str, Any], validates: bool
) -> None:
    parts = parts_of(validates=validates)
    hops = walk(run, parts)
    assert len(hops) == EPOCHS * len(parts)
    for epoch in range(EPOCHS):
        mine = [hop for hop in hops if hop["epoch"] == epoch]
        assert {hop["part_id"] for hop in mine} == {part["part_id"] for part in parts}
        assert [hop["ends"] for hop in mine] == [
            k == PARTITIONS - 1 for k in range(len(parts))
        ]  # the last train hop, before the validation


@pytest.mark.parametrize("done", range(EPOCHS * (PARTITIONS + 1)))
def test_a_fixed_order_allows_one_partition_and_a_free_one_all_that_are_left(done: int) -> None:
    parts = parts_of()
    now = progress(walk(RUN, parts)[:done], parts)
    order = visit_order(SEED, CANDIDATE["ordinal"], now.epoch, PARTITIONS)
    left = [part for part in order if part not in now.visited]
    assert [ordinal_of(part) for part in allowed(RUN, parts, now)] == (left[:1] or [VALIDATION])
    free = {ordinal_of(part) for part in allowed(FREE, parts, now)}
    assert free == (set(left) or {VALIDATION})


@pytest.mark.parametrize("epoch", [-1, 1, 2, 2**31 - 1])
def test_another_epoch_is_refused_with_the_hop_whose_turn_it_is(epoch: int) -> None:
    parts = parts_of()
    part = allowed(RUN, parts, TrainingProgress())[0]
    with pytest.raises(OutOfTurn, match=f"partition {part['part_id']}, epoch {epoch}") as raised:
        check_turn(CANDIDATE, workload(RUN, parts), parts, part, epoch, TrainingProgress())
    assert raised.value.hint == f"Its next hop is epoch 0 on partition {part['part_id']}."


def test_after_the_last_epoch_nothing_is_allowed() -> None:
    parts = parts_of()
    now = progress(walk(RUN, parts), parts)
    assert now == TrainingProgress(epoch=EPOCHS)
    for part in parts:
        with pytest.raises(OutOfTurn, match=f"all its {EPOCHS} epochs"):
            check_turn(CANDIDATE, workload(RUN, parts), parts, part, EPOCHS, now)


def test_the_seed_of_a_hop_depends_on_ordinals_and_never_on_ids() -> None:
    parts = parts_of()
    moved = [part | {"part_id": part["part_id"] + 1000} for part in parts]
    steps = [
        next_step(candidate, workload(RUN, some), some[2], TrainingProgress(), 0, True)
        for candidate, some in ((CANDIDATE, parts), (CANDIDATE | {"candidate_id": 2}, moved))
    ]
    assert steps[0].seed == steps[1].seed == hop_seed(SEED, CANDIDATE["ordinal"], 0, 2)
    held_out = next_step(CANDIDATE, workload(RUN, parts), parts[3], TrainingProgress(), 3, True)
    assert held_out.validates and held_out.seed == hop_seed(SEED, 1, 0, VALIDATION)
