"""TPE and pruners by way of Optuna."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import optuna
import pytest

from mmdb.errors import InvalidOption
from mmdb.train.search import Report, Start, candidates, make_search
from mmdb.train.search.search_log import Trial, begin_trial
from mmdb.train.search.search_space import parse_dimension
from mmdb.train.search.study import Study
from tests.searches import SPACE, bench, quality

TPE = {"method": "tpe", "space": SPACE, "trials": 40}


def noiseless(config: Mapping[str, Any], epoch: int, ordinal: int) -> float:
    return quality(config) - 1 / epoch


def best(search: dict[str, Any], seed: int, **more: Any) -> float:
    made = bench(search, epochs=2, seed=seed, curve=noiseless, **more)
    made.run()
    return max(quality(trained.config) for trained in made.candidates)


def test_optuna_is_loaded_only_when_a_search_asks_for_it() -> None:
    code = (
        "import sys; from mmdb.train.search import make_search as make;"
        "s = {'method': 'asha', 'space': {'lr': [1, 2]}, 'sampler': 'grid'};"
        "make(s, epochs=3, seed=0, maximize=True, options={}).begin();"
        "assert not {'optuna', 'torch', 'sqlalchemy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_first_candidates_are_those_of_a_random_search() -> None:
    made = bench(TPE | {"startup": 6}, workers=1, epochs=2)
    made.run()
    drawn = candidates({"method": "random", "space": SPACE, "trials": 40}, 0)
    found = [trained.config for trained in made.candidates]
    assert found[:6] == drawn[:6] and not any(c in drawn for c in found[6:])


def test_tpe_finds_better_candidates_than_random_search() -> None:
    seeds = range(5)
    by_chance = [best({"method": "random", "space": SPACE, "trials": 40}, s) for s in seeds]
    suggested = [best(TPE, s) for s in seeds]
    assert sum(a > b for a, b in zip(suggested, by_chance, strict=True)) >= 4


def test_candidates_that_are_asked_for_at_once_lie_apart() -> None:
    made = bench(TPE | {"startup": 5, "trials": 30}, workers=1, epochs=1)
    made.run(epochs=12)
    together = [d.config for d in made.search.want(10) if isinstance(d, Start)]
    assert len({config["lr"] for config in together}) == 10


def test_what_is_being_tried_counts_as_bad() -> None:
    dimension = parse_dimension("lr", {"low": 0, "high": 1})

    def trial(ordinal: int, lr: float, score: float | None) -> Trial:
        start = Start(config={"lr": lr}, goal=1)
        member = begin_trial(start, ordinal, ordinal, None)
        if score is not None:
            member.absorb(Report(candidate=ordinal, epoch=1, value=score), score, 0)
        return member

    known = [trial(k, k / 20, -abs(k / 20 - 0.5)) for k in range(20)]  # best at 0.5
    running = [trial(20 + k, 0.5 + k / 1000, None) for k in range(10)]
    study = Study({"lr": dimension}, epochs=1)
    alone = [study.suggest(known, seed)["lr"] for seed in range(10)]
    beside = [study.suggest([*known, *running], seed)["lr"] for seed in range(10)]
    apart = [sum(abs(lr - 0.505) for lr in found) / 10 for found in (alone, beside)]
    assert apart[1] > 1.5 * apart[0]


def test_suggestions_stay_in_the_space_and_keep_its_types() -> None:
    space = SPACE | {
        "architecture.one": 7,
        "architecture.same": {"low": 3, "high": 3},
        "architecture.depth": {"low": 0.5, "high": 9.5, "log": True, "whole": True},
        "architecture.act": {"values": [None, True, [1, 2]], "when": {"optimizer": "sgd"}},
    }
    search = TPE | {"space": space, "startup": 3, "constraints": [["batch_size", ">", 20]]}
    made = bench(search, epochs=1)
    made.run()
    for trained in made.candidates:
        config = trained.config
        assert 1e-4 <= config["lr"] <= 1 + 1e-12 and config["weight_decay"] <= 0.1
        assert type(config["batch_size"]) is int and 20 < config["batch_size"] <= 128
        assert type(config["architecture.depth"]) is int and 1 <= config["architecture.depth"] <= 9
        assert config["architecture.one"] == 7 and config["architecture.same"] == 3
        assert config["optimizer"] in SPACE["optimizer"]
        assert ("architecture.act" in config) == (config["optimizer"] != "adam")


def test_dimensions_can_be_modelled_apart() -> None:
    joint, apart = (bench(TPE | {"multivariate": flag}, epochs=1) for flag in (True, False))
    joint.run()
    apart.run()
    assert [t.config for t in joint.candidates] != [t.config for t in apart.candidates]


def test_a_failed_candidate_is_no_result() -> None:
    made = bench(TPE | {"startup": 4}, epochs=1, fails=lambda t: t.config["lr"] > 1e-2)
    made.run()
    assert len(made.candidates) == 40 and any(t.failed for t in made.candidates)


def test_optuna_prints_nothing_and_its_verbosity_stays(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = optuna.logging.get_verbosity()
    made = bench(TPE | {"trials": 14, "pruner": "median"}, epochs=2)
    made.run()
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before == logging.INFO


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"startup": 0}, "startup"),
        ({"startup": "few"}, "startup"),
        ({"multivariate": 1}, "multivariate"),
        ({"concurrent": -1}, "concurrent"),
        ({"trials": 10_001}, "trials"),
        ({"eta": 3}, "eta"),
        ({"sampler": "tpe"}, "sampler"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption, match=named) as raised:
        make_search(TPE | changed, epochs=9, seed=0, maximize=True, options={})
    assert raised.value.hint


# -- pruners ------------------------------------------------------------------


def pruned(pruner: Any, **more: Any) -> list[int]:
    """Return after which epoch each of ten candidates was pruned, 0 where it was not.

    Candidate k is worth k throughout; one trains after the other.
    """
    search = {"space": {"lr": list(range(1, 11))}, "concurrent": 1, "pruner": pruner}
    worth = more.pop("worth", lambda config, *_: float(config["lr"]))
    made = bench(search, epochs=4, workers=1, curve=worth)
    made.run()
    assert all(t.stopped in (None, "pruned") for t in made.candidates)
    return [t.epoch if t.stopped else 0 for t in made.candidates]


def falling(config: Mapping[str, Any], epoch: int, ordinal: int) -> float:
    return -float(config["lr"])


def test_the_median_pruner_stops_what_is_worse_than_half_of_those_that_are_done() -> None:
    assert pruned("median") == [0] * 10  # each is better than all before it
    assert pruned("median", worth=falling) == [0] * 5 + [1] * 5  # five to begin with


def test_a_pruner_waits_for_its_startup_warmup_and_interval() -> None:
    given = {"name": "median", "startup": 2, "warmup": 2, "interval": 1}
    assert pruned(given, worth=falling) == [0] * 2 + [3] * 8
    assert pruned(given | {"warmup": 3}, worth=falling) == [0] * 2 + [4] * 0 + [0] * 8


def test_the_percentile_pruner_keeps_its_share() -> None:
    def waves(config: Mapping[str, Any], epoch: int, ordinal: int) -> float:
        return [5.0, 1.0, 9.0, 3.0, 7.0, 6.0, 8.0, 2.0, 4.0, 10.0][ordinal]

    quarter = {"name": "percentile", "percentile": 25, "startup": 5}
    assert pruned(quarter, worth=waves)[5:] == [1, 0, 1, 1, 0]
    assert pruned(quarter | {"percentile": 100}, worth=waves) == [0] * 10


def test_the_threshold_pruner_sees_the_metric_as_it_is() -> None:
    lower = {"name": "threshold", "lower": 4.5}
    assert pruned(lower) == [1] * 4 + [0] * 6
    search = {"space": {"lr": [1, 2, 3]}, "pruner": {"name": "threshold", "upper": 2.5}}
    made = bench(search, epochs=2, curve=lambda config, *_: float(config["lr"]))
    made.search = make_search(search, epochs=2, seed=0, maximize=False, options={})
    made.run()
    assert [t.stopped for t in made.candidates] == [None, None, "pruned"]


def test_a_pruned_candidate_makes_room_for_the_next() -> None:
    search = {"method": "random", "space": SPACE, "trials": 30, "pruner": "median"}
    made = bench(search, epochs=9, workers=3)
    trained = made.run()
    assert len(made.candidates) == 30 and trained < 0.7 * 30 * 9


@pytest.mark.parametrize(
    ("pruner", "named"),
    [
        ("hyperband", "pruner"),
        (3, "pruner"),
        ({"percentile": 3}, "pruner"),
        ({"name": ["median"]}, "pruner"),
        ({"name": "median", "patience": 1}, "patience"),
        ({"name": "median", "percentile": 20}, "percentile"),
        ({"name": "median", "startup": -1}, "startup"),
        ({"name": "median", "interval": 0}, "interval"),
        ({"name": "percentile", "percentile": 101}, "percentile"),
        ({"name": "threshold"}, "threshold"),
        ({"name": "threshold", "lower": "low"}, "lower"),
        ({"name": "threshold", "upper": float("inf")}, "upper"),
    ],
    ids=str,
)
def test_a_pruner_that_is_not_one_is_refused(pruner: Any, named: str) -> None:
    with pytest.raises(InvalidOption, match=named) as raised:
        make_search({"pruner": pruner}, epochs=9, seed=0, maximize=True, options={})
    assert raised.value.hint


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"patience": 0}, "patience"),
        ({"patience": 1.5}, "patience"),
        ({"patience": None}, "patience"),
        ({"min_delta": 0.1}, "min_delta"),
        ({"patience": 2, "min_delta": -1}, "min_delta"),
        ({"patience": 2, "min_delta": float("nan")}, "min_delta"),
        ({"patience": 2, "min_delta": "0.1"}, "min_delta"),
    ],
    ids=str,
)
def test_a_patience_that_is_not_one_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption, match=named) as raised:
        make_search({}, epochs=9, seed=0, maximize=True, options=options)
    assert raised.value.hint
