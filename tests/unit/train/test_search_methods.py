"""What holds for every search: it ends, it keeps its promises, and its log resumes it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from mmdb.errors import InvalidHyperparameter
from mmdb.train.search import (
    BUDGET,
    METHODS,
    Decision,
    Entry,
    Goal,
    Report,
    Start,
    Stop,
    Want,
    candidates,
    compares,
    from_row,
    make_search,
    to_row,
)
from tests.searches import SPACE, Bench, Trained, bench

LISTED = {"lr": [0.001, 0.01, 0.1], "optimizer": ["adam"], "weight_decay": [0, 0.03]} | {
    "batch_size": [16, 64]
}
SEARCHES: dict[str, dict[str, Any]] = {
    "grid": {"space": LISTED},
    "grid, some at once": {"space": LISTED, "concurrent": 3},
    "grid, median": {"space": LISTED, "pruner": {"name": "median", "startup": 2}},
    "random": {"method": "random", "space": SPACE, "trials": 20},
    "random, threshold": {
        "method": "random",
        "space": SPACE,
        "trials": 20,
        "pruner": {"name": "threshold", "lower": -3, "warmup": 2},
    },
    "tpe": {"method": "tpe", "space": SPACE, "trials": 16, "startup": 5},
    "tpe, one at a time": {"method": "tpe", "space": SPACE, "trials": 12, "concurrent": 1},
    "tpe, percentile": {"method": "tpe", "space": SPACE, "trials": 16, "pruner": "percentile"},
    "asha": {"method": "asha", "space": SPACE, "trials": 30},
    "asha, grid": {"method": "asha", "space": LISTED, "sampler": "grid", "eta": 2},
    "asha, tpe": {"method": "asha", "space": SPACE, "trials": 20, "sampler": "tpe", "startup": 4},
    "hyperband": {"method": "hyperband", "space": SPACE},
    "hyperband, some at once": {"method": "hyperband", "space": SPACE, "concurrent": 5},
    "pbt": {"method": "pbt", "space": SPACE, "interval": 2},
}
EACH = pytest.mark.parametrize("name", SEARCHES)


def fails_at_random(trained: Trained) -> bool:
    return random.Random(json.dumps([trained.config, trained.epoch])).random() < 0.03


def tried(name: str, **more: Any) -> Bench:
    made = bench(SEARCHES[name], **more)
    made.run()
    return made


def test_every_method_is_tried_here() -> None:
    assert {search.get("method", "grid") for search in SEARCHES.values()} == set(METHODS)


@EACH
@pytest.mark.parametrize("fails", [lambda trained: False, fails_at_random, lambda trained: True])
@pytest.mark.parametrize("workers", [1, 5])
def test_a_search_ends_and_trains_no_one_too_far(name: str, fails: Any, workers: int) -> None:
    done = tried(name, fails=fails, workers=workers, options={"patience": 5})
    assert done.candidates and not done.flying() and done.search.done
    assert done.search.want(3) == []
    for trained in done.candidates:
        assert trained.before + trained.epoch <= 9
        assert trained.goal <= 9


@EACH
def test_some_candidate_trains_for_all_epochs(name: str) -> None:
    assert any(t.before + t.epoch == 9 for t in tried(name).candidates)


@EACH
def test_the_same_seed_and_calls_make_the_same_decisions(name: str) -> None:
    assert tried(name).log == tried(name).log
    if "grid" not in name:
        other = bench(SEARCHES[name], seed=1)
        other.run()
        assert other.candidates[0].config != tried(name).candidates[0].config


@EACH
def test_a_log_resumes_a_search_at_any_point(name: str) -> None:
    whole = tried(name, fails=fails_at_random, options={"patience": 6})
    assert len(whole.log) > 30
    for cut in random.Random(name).sample(range(1, len(whole.log)), 12):
        while cut < len(whole.log) and isinstance(whole.log[cut], Start | Goal | Stop):
            cut += 1  # what one call decided is logged with it
        again = bench(SEARCHES[name], options={"patience": 6})
        again.search.resume(through_rows(whole.log[:cut]))
        assert again.search.begin() == []
        assert decided_by(again, whole.log[cut:]) == decided(whole.log[cut:])


@EACH
def test_a_log_resumes_a_search_whatever_the_order_of_different_candidates_reports(
    name: str,
) -> None:
    whole = tried(name, fails=fails_at_random)
    decisions = [entry for entry in whole.log if isinstance(entry, Start | Goal | Stop)]
    reports = [entry for entry in whole.log if isinstance(entry, Report)]
    later = len(reports) // 2
    rest = whole.log[whole.log.index(reports[later]) + 1 :]
    while rest and isinstance(rest[0], Start | Goal | Stop):
        rest = rest[1:]
    known = len(decisions) - len(decided(rest))
    again = bench(SEARCHES[name])
    by_candidate = sorted(reports[: later + 1], key=lambda report: -report.candidate)
    again.search.resume([*starts_first(decisions[:known]), *by_candidate])
    assert again.search.begin() == []
    assert decided_by(again, rest) == decided(rest)


@EACH
def test_what_a_crash_kept_out_of_the_log_is_decided_again(name: str) -> None:
    """The search goes on and ends, wherever its log was cut."""
    whole = tried(name, fails=fails_at_random)
    for cut in random.Random(name).sample(range(len(whole.log)), 6):
        again = bench(SEARCHES[name], fails=fails_at_random)
        again.search.resume(whole.log[:cut])
        for entry in whole.log[:cut]:
            if isinstance(entry, Report):
                trained = again.candidates[entry.candidate]
                trained.epoch, trained.failed = entry.epoch, entry.failed
            elif not isinstance(entry, Want):
                again.take([entry])
        again.take(again.search.begin())
        again.log = [Want(idle=0)]
        again.run()
        assert not again.flying() and again.search.done


def through_rows(log: list[Entry]) -> list[Entry]:
    """Return a log as it comes back from its table."""
    rows = [to_row(entry) for entry in log]
    return [from_row(row | {"detail": json.loads(json.dumps(row["detail"]))}) for row in rows]


def decided(log: list[Entry]) -> list[Entry]:
    return [entry for entry in log if isinstance(entry, Start | Goal | Stop)]


def decided_by(made: Bench, log: list[Entry]) -> list[Decision]:
    """Tell a search what is in a log; return what it decides."""
    found: list[Decision] = []
    for entry in log:
        if isinstance(entry, Report):
            found += made.search.report(entry)
        elif isinstance(entry, Want):
            found += made.search.want(entry.idle)
    return found


def starts_first(decisions: list[Decision]) -> list[Decision]:
    """Return decisions in another order that keeps each candidate's own, and that of starts."""
    return sorted(decisions, key=lambda decision: not isinstance(decision, Start))


# -- grid and random ----------------------------------------------------------


@pytest.mark.parametrize("name", ["grid", "random"])
def test_all_of_a_grid_or_random_search_begins_at_once(name: str) -> None:
    made = bench(SEARCHES[name], seed=4)
    first = made.search.begin()
    assert [d.config for d in first if isinstance(d, Start)] == candidates(SEARCHES[name], 4)
    assert all(isinstance(d, Start) and d.goal == 9 for d in first)
    assert made.search.done


@pytest.mark.parametrize("name", ["grid, some at once", "hyperband, some at once"])
def test_no_more_than_asked_for_train_at_once_and_no_one_waits_for_an_epoch(name: str) -> None:
    most = SEARCHES[name]["concurrent"]
    made = bench(SEARCHES[name], workers=20)
    made.take(made.search.begin())
    assert len(made.flying()) == most
    while not made.search.done:
        assert len(made.flying()) == most or isinstance(made.search.want(1), list)
        made.run(epochs=1)
        assert len(made.flying()) <= most


def test_as_one_ends_the_next_is_asked() -> None:
    made = bench(SEARCHES["tpe"], workers=3)
    made.run(epochs=60)
    full = [k for k, trained in enumerate(made.candidates) if not trained.in_flight]
    assert full and len(made.flying()) == 3


# -- patience -----------------------------------------------------------------


def stalls_after(epoch: int, rise: float = 1.0) -> Any:
    return lambda config, done, ordinal: rise * min(done, epoch)


@pytest.mark.parametrize("name", ["grid", "random", "tpe", "asha", "pbt"])
def test_patience_ends_a_candidate_that_ceases_to_improve(name: str) -> None:
    made = bench(SEARCHES[name], options={"patience": 2}, curve=stalls_after(3))
    made.run()
    assert any(trained.stopped == "patience" for trained in made.candidates)
    for trained in made.candidates:
        assert trained.before + trained.epoch <= 3 + 2 + trained.before


def test_an_improvement_within_min_delta_is_none() -> None:
    options = {"patience": 3, "min_delta": 0.5}
    small = bench(SEARCHES["grid"], options=options, curve=stalls_after(9, rise=0.1))
    small.run()
    # 0.1 at the first epoch is the mark; 0.7 at the seventh would beat it, and comes too late.
    assert {trained.epoch for trained in small.candidates} == {4}
    large = bench(SEARCHES["grid"], options=options, curve=stalls_after(9, rise=0.6))
    large.run()
    assert {trained.epoch for trained in large.candidates} == {9}


def test_slow_steps_that_add_up_to_an_improvement_count() -> None:
    options = {"patience": 3, "min_delta": 0.15}
    made = bench(SEARCHES["grid"], options=options, curve=stalls_after(9, rise=0.1))
    made.run()
    assert {trained.epoch for trained in made.candidates} == {9}


# -- minimising ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["asha", "asha, tpe", "pbt", "tpe, percentile", "grid, median"])
def test_a_metric_of_which_less_is_better_decides_the_same(name: str) -> None:
    most = tried(name, options={"patience": 4})
    least = bench(SEARCHES[name], curve=lambda *given: -most.curve(*given))
    least.search = make_search(
        SEARCHES[name], epochs=9, seed=0, maximize=False, options={"patience": 4}
    )
    least.run()
    assert decided(least.log) == decided(most.log)


@pytest.mark.parametrize("name", ["asha", "pbt", "tpe", "grid, median"])
def test_a_metric_that_is_no_number_is_the_worst(name: str) -> None:
    def curve(config: Any, epoch: int, ordinal: int) -> float:
        return float("nan") if ordinal % 2 else float(epoch)

    made = bench(SEARCHES[name], curve=curve)
    made.run()
    assert any(t.before + t.epoch == 9 for k, t in enumerate(made.candidates) if k % 2 == 0)


# -- users --------------------------------------------------------------------


@EACH
def test_users_may_stop_clone_and_resume_candidates(name: str) -> None:
    made = bench(SEARCHES[name], workers=3)
    made.run(epochs=12)
    victim = made.flying()[0]
    made.take([stop := Stop(candidate=victim, reason="asked to", by="user")])
    made.take(made.search.take(stop))
    clone = Start(
        config={"lr": 0.5, "batch_size": 8, "optimizer": "adam", "weight_decay": 0},
        goal=2,
        parent=next(k for k, t in enumerate(made.candidates) if t.epoch),
        epoch=1,
        by="user",
    )
    made.take([clone])
    ordinal = len(made.candidates) - 1
    made.take(made.search.take(clone))
    resume = Goal(candidate=victim, epochs=9, by="user")
    made.take([resume])
    made.take(made.search.take(resume))
    made.run()
    assert made.candidates[ordinal].epoch == 2 and made.candidates[victim].epoch == 9
    # The search starts as many candidates of its own, with the configurations it would have drawn.
    own = [e for e in made.log if isinstance(e, Start) and e.by == "search"]
    alone = tried(name, workers=3).log
    firsts = [e.config for e in alone if isinstance(e, Start)]
    assert [e.config for e in own][:5] == firsts[:5]
    again = bench(SEARCHES[name], workers=3)
    again.search.resume(through_rows(made.log))
    assert again.search.done


def test_a_candidate_that_a_user_stopped_frees_its_place_once() -> None:
    made = bench(SEARCHES["grid, some at once"])
    made.take(made.search.begin())
    stop = Stop(candidate=1, reason="asked to", by="user")
    (following,) = made.search.take(stop)
    assert isinstance(following, Start)
    assert made.search.take(stop) == []
    late = Report(candidate=1, epoch=1, value=0.5)  # its hop was under way
    assert made.search.report(late) == []


def test_no_candidate_follows_when_the_time_of_a_run_is_over() -> None:
    made = bench(SEARCHES["grid, some at once"])
    made.take(made.search.begin())
    assert made.search.take(Stop(candidate=1, reason=BUDGET)) == []


# -- what comes up while a run goes on ----------------------------------------


def test_a_suggestion_that_cannot_train_is_not_started() -> None:
    def check(config: dict[str, Any]) -> None:
        if config["architecture.width"] == 16:
            raise InvalidHyperparameter("too wide")

    made = bench(SEARCHES["tpe"])
    made.search = make_search(
        SEARCHES["tpe"], epochs=9, seed=0, maximize=True, options={}, check=check
    )
    made.run()
    assert {t.config["architecture.width"] for t in made.candidates} == {8, 32}
    assert len(made.candidates) == 16


def test_a_search_whose_every_suggestion_cannot_train_says_why() -> None:
    def check(config: dict[str, Any]) -> None:
        raise InvalidHyperparameter("nothing fits")

    search = make_search(SEARCHES["tpe"], epochs=9, seed=0, maximize=True, options={}, check=check)
    with pytest.raises(InvalidHyperparameter, match="nothing fits"):
        search.begin()


def test_results_decide_in_all_but_plain_grids_and_random_searches() -> None:
    assert not compares({}, {}) and not compares(SEARCHES["random"], {"order": "free"})
    assert compares(SEARCHES["grid, median"], {}) and compares({}, {"patience": 2})
    assert all(compares(SEARCHES[name], {}) for name in ("tpe", "asha", "hyperband", "pbt"))
