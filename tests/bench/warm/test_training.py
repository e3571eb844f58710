"""A training is its seed's; curves and their targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.bench.warm.arms import Arm, Cold, CopyByName, Refused, Transferred
from tests.bench.warm.campaign import run
from tests.bench.warm.pairs import Network, Pair
from tests.bench.warm.savings import arm_savings, pair_savings
from tests.bench.warm.tasks import Pictures, Text
from tests.bench.warm.training import Curve, Recipe, built, score, train
from tests.bench.warm.trial import Trials

RECIPE = Recipe(steps=20, every=5, batch_size=16, lr=0.1)


def pictures(seed: int) -> Pictures:
    """Return bright and dark pictures, which one linear layer can tell apart."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (200,), generator=draw)
    noise = torch.randint(0, 120, (200, 3, 4, 4), generator=draw)
    x = (y[:, None, None, None] * 60 + noise).to(torch.uint8)
    return Pictures(x[:100], y[:100], x[100:], y[100:])


def small() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 2))


def test_a_seed_gives_the_same_curve_and_weights() -> None:
    first, again = (built(small, 1), built(small, 1))
    curves = [train(module, pictures(0), RECIPE, seed=2) for module in (first, again)]
    assert curves[0].scores == curves[1].scores
    assert all(map(torch.equal, first.state_dict().values(), again.state_dict().values()))


def test_another_seed_gives_another_order_and_other_weights() -> None:
    assert not torch.equal(
        built(small, 1).get_parameter("1.weight"), built(small, 2).get_parameter("1.weight")
    )
    a, b = (next(pictures(0).batches(8, torch.Generator().manual_seed(s)))[1] for s in (0, 1))
    assert not torch.equal(a, b)


def test_torchs_own_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    train(built(small, 1), pictures(0), RECIPE, seed=2)
    assert torch.equal(before, torch.get_rng_state())


def test_training_learns_and_is_scored_before_the_first_step() -> None:
    curve = train(built(small, 0), pictures(0), RECIPE, seed=0)
    assert curve.steps == (0, 5, 10, 15, 20)
    assert curve.final > 0.9 > curve.scores[0]


def test_a_target_ends_the_training() -> None:
    whole = train(built(small, 0), pictures(0), RECIPE, seed=0)
    target = whole.scores[2]
    reached = whole.steps_to(target)
    short = train(built(small, 0), pictures(0), RECIPE, seed=0, until=target)
    assert reached is not None and short.steps[-1] == reached
    assert short.scores == whole.scores[: len(short.scores)]


def test_a_child_of_a_gentle_arm_moves_less_at_first() -> None:
    gentle = replace(RECIPE, steps=5, gentle=5, averaging=0.0)
    moved = []
    for slower in (0.0, 0.5, 1.0):
        module = built(small, 0)
        train(module, pictures(0), gentle, seed=0, slower=slower)
        start = built(small, 0).get_parameter("1.weight")
        moved.append(float((module.get_parameter("1.weight") - start).detach().norm()))
    assert moved[0] > moved[1] > moved[2] > 0


def test_the_mean_weights_are_scored_and_kept() -> None:
    """A decay of almost one holds on to the weights after the first step."""
    first, last = built(small, 0), built(small, 0)
    train(first, pictures(0), replace(RECIPE, steps=1, every=1, averaging=0.0), seed=0)
    train(last, pictures(0), replace(RECIPE, averaging=1 - 1e-6), seed=0)
    torch.testing.assert_close(
        last.get_parameter("1.weight"), first.get_parameter("1.weight"), atol=1e-4, rtol=0
    )


def test_an_epoch_shows_every_picture_once() -> None:
    task = pictures(0)
    draw = torch.Generator().manual_seed(0)
    x = torch.cat([x for x, _ in islice(task.batches(20, draw), 5)])
    shown, there = (each.flatten(1).sum(1).sort()[0] for each in (x, task.x / 127.5 - 1))
    torch.testing.assert_close(shown, there)


def test_the_score_of_text_is_minus_the_entropy() -> None:
    class Uniform(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(*x.shape, 8)

    text = torch.arange(100, dtype=torch.uint8) % 8
    task = Text(text, text, context=4, windows=5)
    assert score(Uniform(), task) == pytest.approx(-3.0)
    x, y = next(task.batches(3, torch.Generator().manual_seed(0)))
    assert torch.equal((x + 1) % 8, y)


def pair() -> Pair:
    networks = (
        Network(name=name, data="", build=small, task=pictures(seed), recipe=recipe)
        for name, seed, recipe in (("p", 1, replace(RECIPE, steps=5)), ("c", 2, RECIPE))
    )
    parent, child = networks
    return Pair(workload="toy", parent=parent, child=child)


class Broken:
    name = "broken"
    refuses_unlearned = False
    gentle = False

    def initialise(
        self, child: nn.Module, parent: nn.Module, seed: int, example: torch.Tensor
    ) -> None:
        with torch.no_grad():
            child.get_parameter("1.weight").zero_()
        raise Refused("no fit")


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    arms: list[Arm] = [CopyByName(), Transferred(lambda *_: None), Broken()]
    run([pair()], arms[:1], (0, 1), Trials(tmp_path, "a"), ("mmdb",))
    written = (tmp_path / "trials-a.jsonl").read_text()
    run([pair()], arms, (0, 1), Trials(tmp_path, "b"), ("mmdb",))
    assert (tmp_path / "trials-a.jsonl").read_text() == written
    trials = Trials(tmp_path).records()
    assert sorted((t.arm, t.seed) for t in trials) == [
        *(("broken", s) for s in (0, 1)),
        *(("cold", s) for s in (0, 1)),
        *(("copy by name", s) for s in (0, 1)),
        *(("mmdb", s) for s in (0, 1)),
        ("parent", 1000),
    ]
    by_arm = {(t.arm, t.seed): t for t in trials}
    assert by_arm["broken", 0].refused == "no fit"
    assert by_arm["copy by name", 0].taken == 1.0
    assert by_arm["mmdb", 0].taken == by_arm["broken", 0].taken == 0.0
    cold, same = by_arm["cold", 0].curve, by_arm["mmdb", 0].curve
    assert cold.scores == same.scores
    assert by_arm["broken", 0].curve.scores == cold.scores[: len(by_arm["broken", 0].curve.scores)]


def test_savings_are_medians_over_seeds_and_pairs(tmp_path: Path) -> None:
    arms: list[Arm] = [CopyByName(), Transferred(CopyByName().initialise)]
    run([pair()], arms, (0, 1, 2), Trials(tmp_path), ("mmdb",))
    trials = Trials(tmp_path).records()
    savings = {saving.arm: saving for saving in pair_savings(trials)}
    assert savings["copy by name"].warm_steps == savings["mmdb"].warm_steps
    assert savings["mmdb"].final_gain is not None
    parent = next(trial for trial in trials if trial.arm == "parent")
    assert savings["mmdb"].parent_score == parent.curve.final
    (mmdb,) = (row for row in arm_savings(list(savings.values())) if row.arm == "mmdb")
    assert mmdb.saved == savings["mmdb"].saved


def test_a_curve_that_never_reaches_the_target_has_no_step() -> None:
    curve = Curve(steps=(0, 5, 10), scores=(0.1, 0.5, 0.3), seconds=0.0)
    assert [curve.steps_to(target) for target in (0.1, 0.2, 0.5, 0.6)] == [0, 5, 5, None]
    assert curve.final == pytest.approx(0.3)


def test_cold_leaves_the_child_alone() -> None:
    child, parent = built(small, 0), built(small, 1)
    Cold().initialise(child, parent, 0, torch.zeros(1))
    assert torch.equal(child.get_parameter("1.weight"), built(small, 0).get_parameter("1.weight"))


def parts() -> Iterator[str]:
    yield from ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def test_copy_by_name_takes_buffers_and_leaves_other_shapes() -> None:
    parent = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    child = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 5))
    parent(torch.rand(8, 4))
    before = child.get_parameter("2.weight").clone()
    CopyByName().initialise(child, parent, 0, torch.zeros(1))
    for name in parts():
        assert torch.equal(child.state_dict()[f"1.{name}"], parent.state_dict()[f"1.{name}"])
    assert torch.equal(child.get_parameter("2.weight"), before)
