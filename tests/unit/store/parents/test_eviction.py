from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from mmdb.store.parents.rules import DECAY, EvictionPlan, StoredParent, plan_eviction


def stored(
    model_id: int,
    tensors: Sequence[int],
    *,
    ages: Sequence[int] = (0,),
    substitutes: Mapping[int, float] | None = None,
    in_zoo: bool = True,
    pinned: str | None = None,
) -> StoredParent:
    return StoredParent(
        model_id=model_id,
        ages=ages,
        tensors=frozenset(tensors),
        substitutes=substitutes or {},
        in_zoo=in_zoo,
        pinned=pinned,
    )


def gone(plan: EvictionPlan) -> list[int]:
    return [one.model_id for one in plan.evicted]


SIZES = {1: 100, 2: 100, 3: 100, 4: 100}


def test_nothing_goes_while_all_fits() -> None:
    plan = plan_eviction([stored(1, [1]), stored(2, [2])], SIZES, 200)
    assert gone(plan) == []
    assert plan.bytes == 200


def test_old_models_that_nobody_took_go_first() -> None:
    models = [stored(1, [1], ages=[50]), stored(2, [2], ages=[60, 0]), stored(3, [3], ages=[0])]
    assert gone(plan_eviction(models, SIZES, 200)) == [1]
    assert gone(plan_eviction(models, SIZES, 100)) == [1, 3]


def test_hits_decay_with_later_models() -> None:
    models = [stored(1, [1], ages=[90, 80]), stored(2, [2], ages=[90, 10])]
    (first,) = plan_eviction(models, SIZES, 150).evicted
    assert (first.model_id, first.worth) == (1, DECAY**90 + DECAY**80)


def test_a_large_model_goes_before_a_small_one_of_equal_worth() -> None:
    assert gone(plan_eviction([stored(1, [1]), stored(2, [2])], {1: 10, 2: 1000}, 500)) == [2]


def test_a_model_that_another_can_stand_in_for_goes_first_and_the_other_stays() -> None:
    models = [
        stored(1, [1], substitutes={2: 0.99}),
        stored(2, [2], substitutes={1: 0.99}),
        stored(3, [3], ages=[10]),
    ]
    plan = plan_eviction(models, SIZES, 200)
    assert gone(plan) == [1]
    assert plan.evicted[0].substitute == 2
    # Without its twin, 2 is worth more than the old 3.
    assert gone(plan_eviction(models, SIZES, 100)) == [1, 3]


def test_what_is_outside_of_the_zoo_goes_before_all_others() -> None:
    models = [stored(1, [1], ages=[500]), stored(2, [2], ages=[0, 0], in_zoo=False)]
    assert gone(plan_eviction(models, SIZES, 100)) == [2]


def test_a_pinned_model_stays_even_above_the_budget() -> None:
    models = [stored(1, [1], ages=[500], pinned="alias prod"), stored(2, [2])]
    plan = plan_eviction(models, SIZES, 0)
    assert gone(plan) == [2]
    assert plan.bytes == 100


def test_a_model_whose_tensors_others_need_frees_nothing_and_stays() -> None:
    models = [stored(1, [1], ages=[90]), stored(2, [1, 2], pinned="alias prod")]
    assert gone(plan_eviction(models, SIZES, 0)) == []


def test_of_two_models_with_one_tensor_the_second_frees_it() -> None:
    plan = plan_eviction([stored(1, [1, 2]), stored(2, [1, 3])], SIZES, 0)
    assert [one.freed_bytes for one in plan.evicted] == [100, 200]
    assert plan.bytes == 0


def test_two_models_with_the_same_tensors_go_together() -> None:
    plan = plan_eviction([stored(1, [1]), stored(2, [1])], SIZES, 0)
    assert [(one.model_id, one.freed_bytes) for one in plan.evicted] == [(1, 0), (2, 100)]


def test_a_model_that_would_go_in_vain_stays() -> None:
    # Each of the first two has half of 100 bytes, and is worth less per byte than the third.
    models = [stored(1, [1], ages=[400]), stored(2, [1], ages=[60]), stored(3, [2, 3], ages=[50])]
    assert gone(plan_eviction(models, SIZES, 100)) == [3]


@st.composite
def stocks(draw: st.DrawFn) -> tuple[list[StoredParent], dict[int, int], int]:
    sizes = {k: draw(st.integers(1, 1000)) for k in range(draw(st.integers(1, 12)))}
    count = draw(st.integers(1, 10))
    models = [
        stored(
            k,
            draw(st.lists(st.sampled_from(list(sizes)), max_size=6)),
            ages=draw(st.lists(st.integers(0, 300), min_size=1, max_size=3)),
            substitutes=draw(
                st.dictionaries(st.integers(0, count - 1), st.floats(0, 1), max_size=2)
            ),
            in_zoo=draw(st.booleans()),
            pinned=draw(st.sampled_from([None, None, "alias"])),
        )
        for k in range(count)
    ]
    return models, sizes, draw(st.integers(0, 5000))


@given(stocks())
def test_the_bytes_of_a_plan_are_those_of_the_models_that_stay(
    stock: tuple[list[StoredParent], dict[int, int], int],
) -> None:
    models, sizes, budget = stock
    plan = plan_eviction(models, sizes, budget)
    left = [one for one in models if one.model_id not in gone(plan)]
    needed = {tensor for one in left for tensor in one.tensors}
    assert plan.bytes == sum(sizes[tensor] for tensor in needed)
    assert all(one.pinned is None for one in models if one.model_id in gone(plan))
    before = sum(sizes[tensor] for tensor in {t for one in models for t in one.tensors})
    assert before - plan.bytes == sum(one.freed_bytes for one in plan.evicted)
    if plan.evicted:  # no more went than had to
        assert plan.bytes + plan.evicted[-1].freed_bytes > budget
    if plan.bytes > budget:  # nobody is left who could free some
        for one in left:
            kept = {t for other in left if other.pinned is not None for t in other.tensors}
            assert one.pinned is not None or one.tensors <= kept
