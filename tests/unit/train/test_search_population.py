"""Population-based training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from mmdb.errors import InvalidHyperparameter, InvalidOption
from mmdb.train.search import Goal, Report, Start, Stop, make_search, possible
from tests.searches import Bench, bench

FROZEN: dict[str, Any] = {
    "head": ["linear", "mlp"],
    "pool": ["mean", "flatten"],
    "adapter": [None, "lora"],
    "batch_norm": ["frozen", "train"],
}
SPACE: dict[str, Any] = {
    "lr": {"low": 1e-4, "high": 1, "log": True},
    "batch_size": {"low": 8, "high": 128, "whole": True},
    "weight_decay": [0, 0.01, 0.02, 0.03, 0.04],
    "optimizer": ["adam", "sgd"],
    "loss": ["mse", "mae"],
    "schedule": ["none", "linear"],
    "architecture.width": [8, 16, 32],
    "freeze_up_to": ["layer3", None],
    **{
        key: {"values": values, "when": {"freeze_up_to": "layer3"}}
        for key, values in FROZEN.items()
    },
}
PBT = {"method": "pbt", "space": SPACE, "population": 8}
LASTING = ("optimizer", "loss", "schedule", "architecture.width", "freeze_up_to")


def by_lr(config: Mapping[str, Any], epoch: int, ordinal: int) -> float:
    return epoch / 10 - abs(math.log10(config["lr"]) + 2)


def tried(epochs: int = 12, **more: Any) -> Bench:
    made = bench(PBT | more.pop("search", {}), epochs=epochs, curve=by_lr, **more)
    made.run()
    return made


def clones(made: Bench) -> list[tuple[int, Start]]:
    """Return the ordinal and the start of each clone."""
    starts = [entry for entry in made.log if isinstance(entry, Start)]
    return [(k, start) for k, start in enumerate(starts) if start.parent is not None]


def test_a_population_begins_at_once_and_rests_every_interval() -> None:
    made = bench(PBT | {"interval": 5}, epochs=12, curve=lambda *_: 0.0)
    first = made.search.begin()
    assert len(first) == 8 and all(isinstance(d, Start) and d.goal == 5 for d in first)
    made.take(first)
    made.run()  # all score alike, so no one gives way
    assert [t.epoch for t in made.candidates] == [12] * 8
    goals = [entry.epochs for entry in made.log if isinstance(entry, Goal)]
    assert sorted(goals) == [10] * 8 + [12] * 8


def test_one_that_lags_gives_way_to_a_clone_of_a_better_one() -> None:
    made = tried()
    assert len(clones(made)) > 8
    for k, start in clones(made):
        assert start.parent is not None and start.parent < k
        before = made.log.index(start) - 1
        stop = made.log[before]
        assert isinstance(stop, Stop) and stop.reason == "exploited"
        scores = {
            report.candidate: report.value
            for report in made.log[:before]
            if isinstance(report, Report)
        }
        assert scores[start.parent] > scores[stop.candidate]
        last = [r for r in made.log[:before] if isinstance(r, Report)][-1]
        assert last.candidate == stop.candidate  # decided when it reports, not later


def test_a_lineage_trains_for_the_runs_epochs() -> None:
    made = tried(search={"interval": 5})
    ended = [t.before + t.epoch for t in made.candidates if t.stopped is None]
    assert ended and set(ended) == {12}


def test_what_the_weights_have_grown_into_stays_the_parents() -> None:
    made = tried()
    changed = set()
    for k, start in clones(made):
        assert start.parent is not None
        child, parent = made.candidates[k].config, made.candidates[start.parent].config
        assert child.keys() == parent.keys()
        assert all(child[name] == parent[name] for name in LASTING)
        assert all(child.get(name) == parent.get(name) for name in FROZEN)
        changed |= {name for name in child if child[name] != parent[name]}
    assert changed == {"lr", "batch_size", "weight_decay"}


def test_what_the_weights_have_grown_into_is_not_lost_with_a_condition() -> None:
    space = {
        "lr": {"low": 1e-4, "high": 1, "log": True},
        "batch_size": [8, 16],
        "freeze_up_to": {"values": ["layer3"], "when": {"batch_size": 8}},
    }
    made = tried(search={"space": space, "resample": 1}, epochs=30)
    assert clones(made)
    for k, start in clones(made):
        child, parent = made.candidates[k].config, made.candidates[start.parent or 0].config
        assert child.get("freeze_up_to") == parent.get("freeze_up_to")


def test_changes_stay_in_the_space_and_whole_numbers_move() -> None:
    made = tried(search={"resample": 0, "population": 12}, epochs=30)
    for k, start in clones(made):
        assert start.parent is not None
        child, parent = made.candidates[k].config, made.candidates[start.parent].config
        assert 1e-4 <= child["lr"] <= 1
        assert isinstance(child["batch_size"], int) and 8 <= child["batch_size"] <= 128
        factor = child["lr"] / parent["lr"]
        assert min(abs(factor - 0.8), abs(factor - 1.2)) < 1e-9 or child["lr"] in (1e-4, 1)
        places = [SPACE["weight_decay"].index(c["weight_decay"]) for c in (child, parent)]
        assert abs(places[0] - places[1]) <= 1


def test_hyper_parameters_change_apart() -> None:
    """Whether one is drawn anew or moved says nothing of the next one: no stream is shared."""
    made = tried(search={"population": 40, "resample": 0}, epochs=30)
    rises = [
        (
            made.candidates[k].config["lr"] > made.candidates[start.parent or 0].config["lr"],
            made.candidates[k].config["batch_size"]
            > made.candidates[start.parent or 0].config["batch_size"],
        )
        for k, start in clones(made)
    ]
    assert len(rises) > 100
    alike = sum(a == b for a, b in rises) / len(rises)
    assert 0.35 < alike < 0.65


def test_it_gets_better_than_the_population_it_began_with() -> None:
    made = tried(epochs=40)
    first = max(by_lr(t.config, 0, 0) for t in made.candidates[:8])
    assert max(by_lr(t.config, 0, 0) for t in made.candidates) > first


def test_one_that_fails_is_replaced_by_a_clone_of_a_good_one() -> None:
    made = bench(
        PBT,
        epochs=12,
        curve=by_lr,
        fails=lambda trained: trained.config["lr"] > 0.1 and trained.epoch == 2,
    )
    made.run()
    fails = [k for k, e in enumerate(made.log) if isinstance(e, Report) and e.failed]
    assert len(fails) > 1
    for k in fails:
        start = made.log[k + 1]
        assert isinstance(start, Start) and start.parent is not None
        assert not made.candidates[start.parent].failed
    assert len([t for t in made.candidates if not t.failed and t.stopped is None]) == 8


def test_a_clone_whose_change_cannot_train_keeps_its_parents_configuration() -> None:
    def check(config: dict[str, Any]) -> None:
        raise InvalidHyperparameter("no")

    made = bench(PBT, epochs=12, curve=by_lr)
    made.search = make_search(PBT, epochs=12, seed=0, maximize=True, options={}, check=check)
    made.run()
    assert clones(made)
    for k, start in clones(made):
        assert made.candidates[k].config == made.candidates[start.parent or 0].config


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"population": 1}, "population"),
        ({"population": 9_000, "interval": 1}, "population"),
        ({"interval": 0}, "interval"),
        ({"interval": 13}, "interval"),
        ({"fraction": 0.6}, "fraction"),
        ({"fraction": 0.1}, "fraction"),
        ({"fraction": "half"}, "fraction"),
        ({"resample": 1.5}, "resample"),
        ({"resample": float("nan")}, "resample"),
        ({"trials": 8}, "trials"),
        ({"sampler": "tpe"}, "sampler"),
        ({"concurrent": 2}, "concurrent"),
        ({"space": {"architecture.width": [8, 16], "lr": 0.1, "optimizer": ["adam"]}}, "change"),
        ({"space": {"freeze_up_to": ["1", "3"], "head": ["linear", "mlp"], "lr": 0.1}}, "frozen"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption, match=named) as raised:
        possible(PBT | changed, epochs=12, seed=0)
    assert raised.value.hint
