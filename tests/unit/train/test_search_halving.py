"""Asynchronous successive halving and Hyperband."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from mmdb.errors import EmptySearch, InvalidOption, SearchError
from mmdb.train.search import Goal, Report, Start, make_search, possible
from mmdb.train.search.methods import bracket_sizes, ladder
from tests.searches import NOISE, SPACE, Bench, bench, quality

ASHA = {"method": "asha", "space": SPACE, "trials": 9}


@pytest.mark.parametrize(
    ("epochs", "eta", "least", "rungs"),
    [
        (81, 3, 1, (1, 3, 9, 27, 81)),
        (27, 3, 3, (3, 9, 27)),
        (10, 3, 1, (1, 3, 10)),
        (16, 4, 2, (2, 16)),
        (2, 3, 1, (2,)),
        (1, 3, 1, (1,)),
    ],
)
def test_rungs_are_powers_and_the_last_one_is_the_runs_epochs(
    epochs: int, eta: int, least: int, rungs: tuple[int, ...]
) -> None:
    assert ladder(epochs, eta, least) == rungs


def test_brackets_have_the_sizes_of_the_paper() -> None:
    assert bracket_sizes(5, 3) == (81, 34, 15, 8, 5)  # Li et al. 2018, table 1, R = 81


def test_a_candidate_rests_at_its_rung_and_the_best_third_goes_on() -> None:
    search = make_search(ASHA, epochs=9, seed=0, maximize=True, options={})
    (first,) = search.begin()
    assert isinstance(first, Start) and first.goal == 1
    assert len(search.want(2)) == 2
    assert all(isinstance(d, Start) for d in search.report(Report(candidate=0, epoch=1, value=5)))
    assert all(isinstance(d, Start) for d in search.report(Report(candidate=1, epoch=1, value=7)))
    # Of three the best one goes on, before a new one is started.
    assert search.report(Report(candidate=2, epoch=1, value=6)) == [Goal(candidate=1, epochs=3)]


def test_the_highest_rung_is_served_first() -> None:
    search = make_search(ASHA, epochs=9, seed=0, maximize=True, options={})
    search.begin()
    search.want(8)
    for k in range(9):
        search.report(Report(candidate=k, epoch=1, value=k))
    # Promoted at 3, 6 and 9 results: 2, 5 and 8. Each then does epochs 2 and 3.
    for k in (2, 5):
        search.report(Report(candidate=k, epoch=2, value=k))
        search.report(Report(candidate=k, epoch=3, value=k))
    search.report(Report(candidate=8, epoch=2, value=8))
    assert search.report(Report(candidate=8, epoch=3, value=8)) == [Goal(candidate=8, epochs=9)]


def test_a_value_between_two_rungs_decides_nothing() -> None:
    search = make_search(ASHA | {"min_epochs": 2}, epochs=8, seed=0, maximize=True, options={})
    search.begin()
    assert search.report(Report(candidate=0, epoch=1, value=1)) == []
    assert not search.done


def test_no_candidate_is_promoted_twice_from_a_rung_and_none_that_has_failed() -> None:
    made = bench(ASHA | {"trials": 60}, fails=lambda trained: trained.epoch == 2, epochs=27)
    made.run()
    goals = [entry for entry in made.log if isinstance(entry, Goal)]
    assert goals and all(goal.epochs == 3 for goal in goals)
    assert len({goal.candidate for goal in goals}) == len(goals)


def test_failures_count_as_the_worst_of_their_rung() -> None:
    search = make_search(ASHA, epochs=9, seed=0, maximize=True, options={})
    search.begin()
    search.want(2)
    search.report(Report(candidate=0, epoch=0, failed=True))
    search.report(Report(candidate=1, epoch=0, failed=True))
    assert search.report(Report(candidate=2, epoch=1, value=-9)) == [Goal(candidate=2, epochs=3)]


def test_idle_workers_get_a_promotion_or_a_new_candidate_while_there_is_one() -> None:
    """Work-conserving: every idle worker is fed until nothing could be."""
    made = bench(ASHA | {"trials": 81}, epochs=27, workers=8)
    while not made.search.done:
        made.run(epochs=1)
        if len(made.flying()) < 8:
            decisions = made.search.want(8 - len(made.flying()))
            made.take(decisions)
            started = sum(isinstance(entry, Start) for entry in made.log)
            assert len(made.flying()) == 8 or started == 81


def test_a_grid_is_halved_in_an_order_of_the_seeds() -> None:
    search = {"method": "asha", "sampler": "grid", "space": {"lr": list(range(1, 28))}}
    orders = []
    for seed in (0, 0, 1):
        made = bench(search, seed=seed, epochs=9, curve=lambda config, *_: config["lr"])
        made.run()
        orders.append([trained.config["lr"] for trained in made.candidates])
        assert sorted(orders[-1]) == list(range(1, 28))
        assert {t.config["lr"] for t in made.candidates if t.epoch == 9} >= {27}
    assert orders[0] == orders[1] != orders[2] != sorted(orders[2])


# -- what it costs and what it finds -----------------------------------------


GRID = {
    "lr": [0.0001, 0.001, 0.01],
    "batch_size": [16, 32, 64],
    "weight_decay": [0, 0.01, 0.03],
    "optimizer": ["adam", {"name": "sgd"}, "rmsprop"],
}


@pytest.mark.parametrize("epochs", [27, 81])
@pytest.mark.parametrize("workers", [2, 8])
def test_asha_finds_what_the_grid_finds_for_less_than_a_third_of_its_hops(
    epochs: int, workers: int
) -> None:
    """81 candidates, eta 3; curves are noisy, and some rise more slowly than others."""

    def curve(config: Mapping[str, Any], epoch: int, ordinal: int) -> float:
        half_life = 3 + random.Random(str(config)).random()  # epochs
        noise = random.Random(f"{config}/{epoch}").gauss(0, NOISE)
        return quality(config) - 2 ** (-epoch / half_life) + noise

    missed = []
    for seed in range(5):
        halved = bench(
            {"method": "asha", "sampler": "grid", "space": GRID},
            epochs=epochs,
            seed=seed,
            workers=workers,
            curve=curve,
        )
        spent = halved.run()
        assert spent <= 0.3 * 81 * epochs
        full = [t.config for t in halved.candidates if t.epoch == epochs]
        found = max(full, key=lambda config: curve(config, epochs, 0))
        best = max(quality(t.config) for t in halved.candidates)
        missed.append(best - quality(found))
    assert max(missed) <= 4 * NOISE


# -- Hyperband ----------------------------------------------------------------


def hyperband(**more: Any) -> Bench:
    """Return a search that ran, whose later candidates are better than all of the first bracket."""

    def curve(config: Mapping[str, Any], epoch: int, ordinal: int) -> float:
        return -ordinal if ordinal < 27 else ordinal

    made = bench({"method": "hyperband", "space": SPACE}, epochs=27, curve=curve, **more)
    made.run()
    return made


def test_hyperband_starts_each_bracket_at_its_own_rung_and_the_widest_first() -> None:
    goals = [entry.goal for entry in hyperband().log if isinstance(entry, Start)]
    assert goals == [1] * 27 + [3] * 12 + [9] * 6 + [27] * 4  # n of s = 3, 2, 1, 0


def test_candidates_are_compared_within_their_bracket() -> None:
    of_first = sorted(trained.epoch for trained in hyperband(workers=1).candidates[:27])
    assert of_first == [1] * 18 + [3] * 6 + [9] * 2 + [27]


def test_what_is_checked_before_hyperband_is_all_that_it_starts() -> None:
    search = {"method": "hyperband", "space": SPACE}
    before = possible(search, epochs=27, seed=0)
    assert before == [trained.config for trained in hyperband().candidates]


BAD: list[tuple[dict[str, Any], type[SearchError], str]] = [
    ({"eta": 1}, InvalidOption, "eta"),
    ({"eta": 2.5}, InvalidOption, "eta"),
    ({"eta": True}, InvalidOption, "eta"),
    ({"min_epochs": 0}, InvalidOption, "min_epochs"),
    ({"min_epochs": 28}, InvalidOption, "min_epochs"),
    ({"trials": 10_001}, InvalidOption, "trials"),
    ({"trials": 0}, EmptySearch, "trials"),
    ({"concurrent": 0}, InvalidOption, "concurrent"),
    ({"sampler": "sobol"}, InvalidOption, "sampler"),
    ({"sampler": ["grid"]}, InvalidOption, "sampler"),
    ({"sampler": "grid", "trials": 9}, InvalidOption, "trials"),
    ({"startup": 4}, InvalidOption, "startup"),
    ({"pruner": "median"}, InvalidOption, "pruner"),
    ({"population": 4}, InvalidOption, "population"),
    ({"method": "hyperband", "trials": 9}, InvalidOption, "trials"),
    ({"method": "hyperband", "sampler": "grid"}, InvalidOption, "sampler"),
]


@pytest.mark.parametrize(("changed", "error", "named"), BAD, ids=str)
def test_options_that_do_not_fit_are_refused(
    changed: dict[str, Any], error: type[SearchError], named: str
) -> None:
    search = {"method": "asha", "space": SPACE} | changed
    with pytest.raises(error, match=named) as raised:
        make_search(search, epochs=27, seed=0, maximize=True, options={})
    assert raised.value.hint
    with pytest.raises(error, match=named):
        possible(search, epochs=27, seed=0)


def test_hyperband_of_too_many_candidates_is_refused() -> None:
    with pytest.raises(InvalidOption, match="brackets"):
        possible({"method": "hyperband", "space": SPACE}, epochs=3**9, seed=0)
