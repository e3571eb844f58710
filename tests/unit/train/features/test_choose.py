"""Choosing where features come from: the best of all choices, within two budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil, inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmdb.train.features import storage_solver
from mmdb.train.features.storage_choice import Conditions, Demand, StoragePlan, choose
from mmdb.train.features.storage_cost import OPTIONS, Problem

MB = 10**6
FREE = Conditions(
    disk_bytes=10**12, memory_bytes=10**12, write_byte_s=1e-8, read_byte_s=1e-8, map_byte_s=1e-10
)


def demand(key: str = "a", **changes: object) -> Demand:
    """Return 1,000 rows of 4 kB in four partitions, which take 1 s to compute, used 20 times."""
    given: dict[str, object] = {
        "key": key,
        "backbone": "resnet",
        "candidates": 4,
        "passes": 5,
        "rows": 1000,
        "row_s": 1e-3,
        "disk_bytes": 4 * MB,
        "cache_bytes": 4 * MB,
        "partition_bytes": MB,
    }
    return Demand(**(given | changes))  # type: ignore[arg-type]


def under(**changes: object) -> Conditions:
    """Return conditions without limits, but for these."""
    known = {name: getattr(FREE, name) for name in Conditions.__dataclass_fields__}
    return Conditions(**(known | changes))


def choices(plan: StoragePlan) -> tuple[str, ...]:
    return tuple(one.choice for one in plan.chosen)


# -- against all choices ----------------------------------------------------------------


@st.composite
def demands(draw: st.DrawFn, most: int) -> list[Demand]:
    def one(place: int) -> Demand:
        size = draw(st.sampled_from([64_000, 512_000, 4 * MB, 40 * MB]))
        return demand(
            str(place),
            backbone=draw(st.sampled_from(["one", "two"])),
            candidates=draw(st.integers(1, 10)),
            passes=draw(st.sampled_from([0.5, 1, 5])),
            row_s=draw(st.floats(0, 0.01)),
            disk_bytes=size // draw(st.sampled_from([1, 2])),
            cache_bytes=size,
            partition_bytes=size // 4,
            raw_bytes=3 * MB,
            found_rows=draw(st.sampled_from([0, 0, 400, 1000])),
            is_source=draw(st.booleans()),
        )

    return [one(place) for place in range(draw(st.integers(1, most)))]


CONDITIONS = st.builds(
    Conditions,
    disk_bytes=st.sampled_from([0, MB, 10 * MB, 50 * MB, 10**9]),
    memory_bytes=st.sampled_from([0, MB, 10 * MB, 41 * MB, 10**9]),
    write_byte_s=st.sampled_from([1e-8, 1e-7, 1e-6]),
    read_byte_s=st.sampled_from([1e-9, 1e-7, 1e-6]),
    map_byte_s=st.just(1e-10),
    nodes=st.sampled_from([1, 3]),
    workers=st.sampled_from([1, 4]),
    fuse=st.sampled_from([1, 8]),
    reuse=st.sampled_from([0, 2]),
)


@settings(max_examples=100, deadline=None)
@given(demands(most=4), CONDITIONS)
def test_no_other_choices_that_fit_take_less(given: list[Demand], conditions: Conditions) -> None:
    plan = choose(given, conditions)
    problem = Problem.of(given, conditions)
    possible = [
        [c for c in OPTIONS if c != "memory" or one.found_rows < one.rows] for one in given
    ]  # what is there is read
    every = (tried for tried in product(*possible) if problem.fits(tried))
    least = min(map(problem.total_s, every))
    assert problem.fits(choices(plan))
    assert problem.total_s(choices(plan)) <= least * (1 + 1e-8)


@settings(max_examples=30, deadline=None)
@given(demands(most=20), CONDITIONS, st.sampled_from([None, *OPTIONS]))
def test_budgets_are_never_exceeded(
    given: list[Demand], conditions: Conditions, asked: str | None
) -> None:
    plan = choose(given, conditions, asked=asked)
    by_choice = {c: [one for one in plan.chosen if one.choice == c] for c in OPTIONS}
    assert sum(one.disk_bytes for one in plan.chosen) == plan.disk_bytes <= conditions.disk_bytes
    kept = sum(one.memory_bytes for one in by_choice["memory"])
    held = max((one.memory_bytes for one in by_choice["recomputed"]), default=0)
    assert kept + held == plan.memory_bytes <= conditions.memory_bytes
    assert all(one.reason.endswith(".") for one in plan.chosen)
    assert asked is None or {one.choice for one in plan.chosen} <= {asked, "streamed"}


@settings(max_examples=60, deadline=None)
@given(demands(most=4), CONDITIONS)
def test_the_seconds_of_a_plan_are_those_of_its_choices(
    given: list[Demand], conditions: Conditions
) -> None:
    plan = choose(given, conditions)
    one_run = Problem.of(given, under(**_fields(conditions) | {"reuse": 0}))
    assert plan.seconds == pytest.approx(one_run.total_s(choices(plan)))
    streamed = one_run.total_s(("streamed",) * len(given))
    assert plan.seconds + plan.saved_s == pytest.approx(streamed)


def _fields(conditions: Conditions) -> dict[str, object]:
    return {name: getattr(conditions, name) for name in Conditions.__dataclass_fields__}


@pytest.mark.parametrize("seed", range(2))
def test_what_is_chosen_for_many_is_nearly_the_best(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [
        demand(
            str(place),
            backbone=f"network {place % 2}",
            row_s=1e-4 * (1 + (7 * place + seed) % 18),
            candidates=1 + (place * (seed + 3)) % 5,
            disk_bytes=MB * (1 + (5 * place + seed) % 7),
            cache_bytes=MB * (1 + (5 * place + seed) % 7),
        )
        for place in range(18)
    ]
    problem = Problem.of(given, under(disk_bytes=20 * MB, memory_bytes=15 * MB))
    near = problem.total_s(storage_solver.best(problem))
    monkeypatch.setattr(storage_solver, "EXACT", 18)
    assert near <= 1.02 * problem.total_s(storage_solver.best(problem))


# -- what choices cost -------------------------------------------------------------------


def plainly(given: Sequence[Demand], tried: Sequence[str], conditions: Conditions) -> float:
    """Return the seconds of choices on one node in one run, of features that nobody has."""
    total, deepest = 0.0, dict.fromkeys((one.backbone for one in given), 0.0)
    for one, choice in zip(given, tried, strict=True):
        uses, seconds = one.candidates * one.passes, one.rows * one.row_s
        if choice in ("stored", "memory"):
            deepest[one.backbone] = max(deepest[one.backbone], seconds)
            total += (choice == "stored") * one.disk_bytes * conditions.write_byte_s
        elif choice == "recomputed":
            total += one.passes * ceil(one.candidates / conditions.fuse) * seconds
        else:
            total += uses * seconds
    return total + sum(deepest.values())


def _cases() -> Iterator[tuple[list[Demand], Conditions]]:
    for fuse, write, sizes in product((1, 3), (1e-8, 1e-6), ((4, 1, 2), (1, 8, 30))):
        given = [
            demand(
                str(place),
                backbone=name,
                row_s=row_s,
                candidates=2 * place + 1,
                disk_bytes=size * MB,
                cache_bytes=2 * size * MB,
                partition_bytes=size * MB // 2,
            )
            for place, (name, row_s, size) in enumerate(
                zip("aab", (1e-3, 3e-3, 2e-3), sizes, strict=True)
            )
        ]
        yield (
            given,
            under(
                disk_bytes=5 * MB, memory_bytes=5 * MB, write_byte_s=write, fuse=fuse, map_byte_s=0
            ),
        )


@pytest.mark.parametrize(("given", "conditions"), list(_cases()))
def test_the_best_by_another_account(given: list[Demand], conditions: Conditions) -> None:
    least = inf
    for tried in product(OPTIONS, repeat=len(given)):
        pairs = list(zip(given, tried, strict=True))
        disk = sum(one.disk_bytes for one, choice in pairs if choice == "stored")
        memory = sum(one.cache_bytes for one, choice in pairs if choice == "memory")
        held = [one.partition_bytes for one, choice in pairs if choice == "recomputed"]
        if max(disk, memory + max(held, default=0)) <= 5 * MB:
            least = min(least, plainly(given, tried, conditions))
    plan = choose(given, conditions)
    assert plan.seconds == pytest.approx(plainly(given, choices(plan), conditions))
    assert plan.seconds == pytest.approx(least)


def test_what_is_kept_of_one_backbone_comes_out_of_one_pass() -> None:
    cuts = [demand("deep", row_s=3e-3), demand("shallow", row_s=1e-3), demand("mid", row_s=2e-3)]
    plan = choose(cuts, FREE)
    assert choices(plan) == ("memory",) * 3
    assert [one.compute_s for one in plan.chosen] == pytest.approx([1.0, 1.0, 1.0])
    apart = [demand(one.key, backbone=one.key, row_s=one.row_s) for one in cuts]
    assert sum(one.compute_s for one in choose(apart, FREE).chosen) == pytest.approx(6.0)


def test_features_that_are_found_are_read_and_deeper_ones_computed_from_them() -> None:
    found = demand("found", row_s=2e-3, found_rows=1000, is_source=True)
    deeper = demand("deeper", row_s=3e-3)
    plan = choose([deeper, found], FREE)
    assert plan.chosen[1].choice == "stored"
    assert (plan.chosen[1].disk_bytes, plan.chosen[1].write_s) == (0, 0)
    assert "already" in plan.chosen[1].reason
    assert plan.chosen[0].compute_s == pytest.approx(1.0)
    pooled = demand("found", row_s=2e-3, found_rows=1000)
    assert choose([deeper, pooled], FREE).chosen[0].compute_s == pytest.approx(3.0)


def test_what_is_missing_of_features_is_computed_alone() -> None:
    (chosen,) = choose([demand(found_rows=750)], FREE, asked="stored").chosen
    assert chosen.compute_s == pytest.approx(0.25)
    assert chosen.disk_bytes == MB


def test_later_runs_make_storing_worth_its_time() -> None:
    dear = under(write_byte_s=1e-7)  # 0.4 s, against 1 s of computing
    assert choices(choose([demand()], dear)) == ("memory",)
    assert choices(choose([demand()], under(write_byte_s=1e-7, reuse=1))) == ("stored",)


def test_nodes_read_what_one_of_them_stored() -> None:
    assert choices(choose([demand()], under(nodes=3))) == ("stored",)
    memory = choose([demand()], under(nodes=3), asked="memory").chosen[0]
    assert memory.compute_s == pytest.approx(3.0)


def test_a_fused_hop_computes_features_once() -> None:
    for fuse, workers, hops in ((1, 1, 20), (8, 1, 5), (3, 1, 10), (8, 2, 10), (8, 16, 20)):
        conditions = under(fuse=fuse, workers=workers)
        (chosen,) = choose([demand()], conditions, asked="recomputed").chosen
        assert chosen.compute_s == pytest.approx(hops)


def test_cheap_layers_are_computed_with_each_batch() -> None:
    (chosen,) = choose([demand(row_s=1e-9)], FREE).chosen
    assert chosen.choice == "streamed"
    assert chosen.saved_s == 0


# -- budgets -----------------------------------------------------------------------------


def test_without_budgets_of_any_size_everything_is_streamed() -> None:
    plan = choose([demand("a"), demand("b", row_s=2e-3)], under(disk_bytes=0, memory_bytes=0))
    assert choices(plan) == ("streamed", "streamed")
    assert (plan.disk_bytes, plan.memory_bytes, plan.saved_s) == (0, 0, 0)
    assert "disk budget of 0 B" in plan.chosen[0].reason
    assert "memory budget of 0 B" in plan.chosen[0].reason


def test_a_budget_smaller_than_a_partition_is_told() -> None:
    (chosen,) = choose([demand()], under(disk_bytes=0, memory_bytes=MB - 1)).chosen
    assert chosen.choice == "streamed"
    assert "no room for the 1 MB of a partition" in chosen.reason


def test_a_budget_of_one_partition_is_enough_to_compute_again_and_again() -> None:
    fused = under(disk_bytes=0, memory_bytes=MB, fuse=8)
    assert choices(choose([demand()], fused)) == ("recomputed",)
    two = [demand("a"), demand("b", row_s=2e-3)]  # one after the other in the same room
    assert choices(choose(two, fused)) == ("recomputed", "recomputed")
    assert choose(two, fused).memory_bytes == MB


def test_what_saves_most_has_the_budget() -> None:
    given = [demand("slow", row_s=5e-3, backbone="b"), demand("fast", row_s=1e-3)]
    plan = choose(given, under(disk_bytes=4 * MB, memory_bytes=0))
    assert choices(plan) == ("stored", "streamed")
    assert "of which 4 MB are taken" in plan.chosen[1].reason


# -- what is asked for, and what is fixed ---------------------------------------------------


@pytest.mark.parametrize("asked", OPTIONS)
def test_what_is_asked_for_is_done_where_it_fits(asked: str) -> None:
    plan = choose([demand("a"), demand("b", row_s=1e-9)], FREE, asked=asked)
    assert choices(plan) == (asked, asked)
    assert {one.reason for one in plan.chosen} == {"It was asked for."}


def test_what_is_asked_for_and_does_not_fit_is_streamed_with_the_reason() -> None:
    given = [demand("a"), demand("b", row_s=9e-3)]
    plan = choose(given, under(disk_bytes=4 * MB), asked="stored")
    assert sorted(choices(plan)) == ["stored", "streamed"]
    (other,) = (one for one in plan.chosen if one.choice == "streamed")
    assert other.reason == (
        "Storing them was asked for; "
        "the disk budget of 4 MB, of which 4 MB are taken, has no room for 4 MB."
    )


@pytest.mark.parametrize("choice", ["streamed", "whole"])
def test_what_is_fixed_stays_so(choice: str) -> None:
    fixed = demand("a", fixed=(choice, "Rows are augmented."))
    for asked in (None, "stored"):
        plan = choose([fixed, demand("b")], FREE, asked=asked)
        assert (plan.chosen[0].choice, plan.chosen[0].reason) == (choice, "Rows are augmented.")
        assert plan.chosen[1].choice != "streamed"


def test_nothing_to_choose() -> None:
    assert choose([], FREE) == StoragePlan(chosen=(), disk_bytes=0, memory_bytes=0)
