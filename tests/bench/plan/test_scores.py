"""What is made of outcomes: errors beside their floor, coverage, choices and regret."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mmdb.bench.figures import Figure
from tests.bench.plan.outcome import Outcome, Runs
from tests.bench.plan.report import (
    choice_figures,
    coverage_figures,
    error_figures,
    iteration_figures,
    mop_figures,
)
from tests.bench.plan.scores import PLANNER, choices, deviations, errors
from tests.bench.plan.step_report import step_figures
from tests.bench.plan.steps import Step

RUN = Outcome(
    workload="w",
    strategy="mop",
    workers=2,
    repeat=0,
    rows=100,
    epochs=2,
    seen=True,
    hops=10,
    p10_s=9.0,
    p50_s=10.0,
    p90_s=11.0,
    actual_s=10.0,
)


def repeats(*actual: float, **given: object) -> list[Outcome]:
    return [replace(RUN, repeat=k, actual_s=a, **given) for k, a in enumerate(actual)]  # type: ignore[arg-type]


def by_name(figures: list[Figure], text: str) -> Figure:
    (found,) = (figure for figure in figures if text in figure.name)
    return found


def test_an_error_has_a_bar() -> None:
    figures = list(error_figures("x", [0.01, -0.01, 0.01], [0.0], (2.0, 5.0, None)))
    middle = by_name(figures, "median error")
    assert (middle.value, middle.bar, middle.holds) == (1.0, "<= 2", True)
    assert by_name(figures, "largest error").holds is None
    missed = list(error_figures("x", [-0.03, 0.03], [], (2.0, 5.0, None)))
    assert by_name(missed, "median error").holds is False
    assert by_name(missed, "p90 error").holds is True


def test_no_bar_is_below_what_runs_vary_by() -> None:
    runs = repeats(9.5, 10.5)
    figures = list(error_figures("x", errors(runs), deviations(runs), (2.0, None, None)))
    middle = by_name(figures, "median error")
    assert middle.value == pytest.approx(5.01, abs=0.02)
    assert middle.bar == "<= 7.07" and middle.holds
    assert by_name(figures, "median deviation").value == pytest.approx(7.07)


def test_only_repeats_of_one_way_tell_a_deviation() -> None:
    assert deviations([RUN, replace(RUN, strategy="task", actual_s=20.0)]) == []
    assert deviations(repeats(9.0, 10.0, 11.0)) == [pytest.approx(0.1)]


def test_what_was_seen_has_bars_of_its_own() -> None:
    runs = [*repeats(10.0, 10.0), *repeats(9.6, 9.6, seen=False, workers=1)]
    figures = list(mop_figures(runs))
    assert by_name(figures, "mop, seen workers and candidates: median error").value == 0
    unseen = by_name(figures, "unseen workers or candidates: largest error")
    assert (unseen.value, unseen.bar, unseen.holds) == (4.17, "<= 10", True)
    assert not by_name(figures, "unseen workers or candidates: median error").holds


def test_each_iterating_strategy_has_its_figures() -> None:
    runs = repeats(10.0, 10.0, strategy="data_parallel")
    runs += repeats(9.0, 9.0, strategy="data_parallel", seen=False, workers=3)
    figures = list(iteration_figures(runs))
    assert {figure.name.partition(":")[0] for figure in figures} == {
        "data_parallel",
        "data_parallel, seen",
    }
    assert by_name(figures, "data_parallel, seen: largest error").value == 0


def test_coverage_is_neither_too_little_nor_too_much() -> None:
    three_of_four = repeats(10.0, 9.1, 10.9, 12.0)
    (figure,) = coverage_figures(three_of_four)
    assert figure.value == 75 and figure.holds
    (whole,) = coverage_figures(three_of_four[:3])
    assert whole.value == 100 and whole.holds is False
    assert not list(coverage_figures([]))


def made(said: tuple[float, float], actual: tuple[float, float], workload: str) -> list[Outcome]:
    """Return a workload of two ways; Amdahl would always hop on two workers."""
    return [
        replace(RUN, workload=workload, p50_s=said[0], actual_s=actual[0], ratings={"Amdahl": 1.0}),
        replace(
            RUN,
            workload=workload,
            strategy="task",
            p50_s=said[1],
            actual_s=actual[1],
            ratings={"Amdahl": 1.0},
        ),
    ]


def test_a_choice_is_right_within_two_percent_of_the_best() -> None:
    runs = [*made((9.0, 10.0), (10.1, 10.0), "near"), *made((9.0, 10.0), (11.0, 10.0), "far")]
    near, far = choices(runs)[PLANNER]
    assert near.chosen == far.chosen == ("mop", 2)
    assert near.best == far.best == ("task", 2)
    assert near.regret == pytest.approx(0.01) and near.is_right
    assert far.regret == pytest.approx(0.1) and not far.is_right


def test_a_choice_is_right_within_what_runs_vary_by() -> None:
    noisy = [*repeats(9.0, 12.0), *repeats(10.0, 10.0, strategy="task", p50_s=11.0)]
    (choice,) = choices(noisy)[PLANNER]
    assert choice.regret == pytest.approx(0.05) and choice.is_right


def test_the_planner_has_bars_and_baselines_stand_beside_it() -> None:
    runs = [*made((9.0, 10.0), (10.0, 11.0), "a"), *made((10.0, 9.0), (11.0, 10.0), "b")]
    figures = list(choice_figures(runs, is_whole=True))
    assert by_name(figures, "mmdb: right").value == 100 and by_name(figures, "mmdb: right").holds
    amdahl = by_name(figures, "Amdahl: right")
    assert (amdahl.value, amdahl.bar, amdahl.holds) == (50, "", None)
    assert by_name(figures, "Amdahl: worst regret").value == pytest.approx(10)
    assert by_name(figures, "choice: workloads").holds is False
    assert by_name(list(choice_figures(runs, is_whole=False)), "choice: workloads").holds is None


def test_a_journal_goes_on_after_half_a_line(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "runs.jsonl"
    Runs(file).add(RUN)
    with file.open("a") as text:
        text.write('{"workload": "w"')
    journal = Runs(file)
    assert journal.records() == [RUN] and journal.find(RUN.key) == RUN
    journal.add(replace(RUN, repeat=1))
    assert [one.repeat for one in Runs(file).of("w")] == [0, 1]
    assert Runs(file).of("other") == []
    assert asdict(Runs(file).records()[0]) == asdict(RUN)


def test_steps_have_bars_of_their_own() -> None:
    step = Step(
        model="m",
        family="f",
        batch=8,
        bare_s=1.2,
        cold_s=1.07,
        warm_s=1.02,
        measured_s=1.0,
        deviation=0.01,
        memory_predicted=94.0,
        memory_measured=100.0,
    )
    figures = list(step_figures([step, replace(step, memory_measured=None)]))
    assert by_name(figures, "steps: models").holds is False
    assert by_name(figures, "warm: median error").value == pytest.approx(2.0)
    assert by_name(figures, "cold: p90 error").bar == "<= 20"
    assert by_name(figures, "largest error of memory, of 1 models").value == 6.0
    assert by_name(figures, "predicted least").holds is False
