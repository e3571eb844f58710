"""What is made of trials: figures with bars, medians, refusals; half a trial; processes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from mmdb.bench.figures import Figure
from mmdb.bench.workload import FULL, BenchShare
from tests.bench.warm.arms import Arm, CopyByName, Transferred
from tests.bench.warm.bench import PARTS
from tests.bench.warm.campaign import run
from tests.bench.warm.pairs import Network, Pair
from tests.bench.warm.processes import Part, train_part
from tests.bench.warm.report import BARS, safety_figures, saving_figures
from tests.bench.warm.savings import pair_savings
from tests.bench.warm.tasks import Pictures
from tests.bench.warm.training import Curve, Recipe
from tests.bench.warm.trial import Trial, Trials

STEPS = (0, 10, 20, 30, 40)
COLD_SCORES = (0.1, 0.3, 0.5, 0.7, 0.9)


def trial(arm: str, scores: tuple[float, ...], seed: int = 0, refused: str = "") -> Trial:
    curve = Curve(steps=STEPS[: len(scores)], scores=scores, seconds=1.0)
    return Trial(pair="p", child="c", arm=arm, seed=seed, curve=curve, refused=refused)


def trials(warm: tuple[float, ...], *, parent: float = 0.6, spread: float = 0.0) -> list[Trial]:
    """Return two seeds of a pair; the target is 0.7."""
    return [
        trial("parent", (parent,), 1000),
        *(trial("cold", (*COLD_SCORES[:-1], 0.9 + s), k) for k, s in enumerate((-spread, spread))),
        *(trial("mmdb", warm, seed) for seed in (0, 1)),
    ]


def found(figures: Iterator[Figure], text: str) -> Figure:
    (figure,) = (figure for figure in figures if text in figure.name)
    return figure


def test_the_steps_saved_have_a_bar() -> None:
    given = trials((0.5, 0.8, 0.8, 0.8, 0.9))
    saved = found(saving_figures("ensemble", given, is_whole=True), "mmdb: steps saved")
    assert saved.value == pytest.approx(100 * 2 / 3, abs=1e-3)
    assert saved.bar == ">= 41" and saved.holds
    late = found(saving_figures("ensemble", trials(COLD_SCORES), True), "mmdb: steps saved")
    assert late.value == 0 and late.holds is False


def test_other_arms_have_no_bar() -> None:
    given = [*trials(COLD_SCORES), trial("copy by name", COLD_SCORES)]
    figures = list(saving_figures("nasbench", given, is_whole=True))
    assert all(not figure.bar for figure in figures if "copy by name" in figure.name)


def test_a_share_has_no_bar_on_the_number_of_pairs() -> None:
    for is_whole, holds in ((True, False), (False, None)):
        figures = saving_figures("nasbench", trials(COLD_SCORES), is_whole)
        assert found(figures, "pairs whose target").holds is holds


def test_a_pair_whose_parent_is_at_the_target_does_not_count() -> None:
    figures = list(saving_figures("nasbench", trials(COLD_SCORES, parent=0.7), is_whole=True))
    assert found(iter(figures), "pairs whose target").value == 0
    assert not [figure for figure in figures if "steps saved" in figure.name]


def test_harm_beyond_the_noise_is_told() -> None:
    # finals of 0.7 - 0.1 / 3 and 0.7 + 0.1 / 3: two standard errors of a difference are 0.094
    for last, holds in ((0.65, True), (0.55, False)):
        given = trials((0.1, 0.1, 0.5, 0.7, last), spread=0.1)
        figure = found(safety_figures(given), "mmdb, taken")
        assert figure.value == pytest.approx((last - 0.9) / 3, abs=1e-4)
        assert figure.holds is holds


def test_a_final_score_that_is_no_number_is_harm() -> None:
    (saving,) = pair_savings(trials((0.1, 0.1, 0.5, 0.7, math.nan), spread=0.3))
    assert saving.is_worse


def test_one_seed_tells_nothing_about_the_noise() -> None:
    given = [t for t in trials((0.1, 0.1, 0.1, 0.1, 0.1)) if t.seed != 1]
    assert found(safety_figures(given), "mmdb").bar == ""
    assert found(saving_figures("nasbench", given, is_whole=True), "mmdb: final score").bar == ""


def test_a_refusal_is_told() -> None:
    given = [*trials(COLD_SCORES)[:3], trial("mmdb", COLD_SCORES, refused="its score is 0.10")]
    assert found(safety_figures(given), "refused as its score is 0.10").holds


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    Trials(tmp_path, "a").add(trial("cold", COLD_SCORES))
    with (tmp_path / "trials-a.jsonl").open("a") as file:
        file.write('{"pair": "p", "arm": "mm')
    assert Trials(tmp_path).records() == [trial("cold", COLD_SCORES)]


def test_a_cold_start_that_begins_at_its_target_leaves_nothing_to_save() -> None:
    cold, warm = trial("cold", (0.5, 0.4, 0.5)), trial("mmdb", (0.3, 0.6, 0.7))
    parent = trial("parent", (0.1,), 1000)
    for child, expected in ((cold, 0), (warm, -STEPS[1])):
        (saving,) = pair_savings([parent, cold, replace(child, arm="mmdb")])
        assert (saving.cold_steps, saving.saved) == (0, expected)


# -- processes ----------------------------------------------------------------


def small() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 2))


def pairs(share: BenchShare = FULL) -> Iterator[Pair]:
    """Yield two parents of one child."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(2, (60,), generator=draw)
    x = (y[:, None, None, None] * 60 + torch.randint(0, 120, (60, 3, 4, 4), generator=draw)).byte()
    task = Pictures(x[:40], y[:40], x[40:], y[40:])
    recipe = Recipe(steps=4, every=2, batch_size=10, lr=0.1)
    child = Network(name="c", data="d", build=small, task=task, recipe=recipe)
    for name in ("p", "q"):
        yield Pair(workload="toy", parent=replace(child, name=name), child=child)


def test_a_childs_cold_training_is_done_once(tmp_path: Path) -> None:
    run(pairs(), [CopyByName()], (0,), Trials(tmp_path), ())
    cold = [t for t in Trials(tmp_path).records() if t.arm == "cold"]
    assert len(cold) == 2 and cold[0].curve == cold[1].curve  # seconds too


def test_processes_train_what_one_process_would(tmp_path: Path) -> None:
    arms: tuple[Arm, ...] = (Transferred(CopyByName().initialise), CopyByName())
    part = Part(
        name="toy", pairs=pairs, arms=arms, whole=("mmdb",), seeds=1, folder=tmp_path / "many"
    )
    many = train_part(part, None, 2)
    run(pairs(), arms, (0,), Trials(tmp_path / "one"), ("mmdb",))
    one = Trials(tmp_path / "one").records()
    scores = [{(t.pair, t.arm): t.curve.scores for t in each} for each in (many, one)]
    assert scores[0] == scores[1]
    assert len(train_part(part, 1, 1)) == 4  # of the first pair, none trained again


# -- options ------------------------------------------------------------------


def test_every_part_has_bars() -> None:
    assert set(BARS) | {"safety"} == set(PARTS)
