"""Every pair, arm and seed of a measurement, each trained once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from statistics import mean
from time import perf_counter

import torch
from torch import nn

from mmdb.store.parents.rules import chance_limit
from tests.bench.warm.arms import Arm, Cold, Refused
from tests.bench.warm.pairs import Network, Pair
from tests.bench.warm.tasks import Pictures
from tests.bench.warm.training import Curve, built, drawn_from, score, train
from tests.bench.warm.trial import COLD, Trial, Trials

#: Of the parents' weights and data order; the children have seeds of their own, from 0 on.
PARENT_SEED = 1000
#: Name of the trial that holds a parent's score on its child's held-out data.
PARENT_ARM = "parent"


def run(
    pairs: Iterable[Pair],
    arms: Sequence[Arm],
    seeds: Sequence[int],
    journal: Trials,
    whole: Sequence[str],
) -> None:
    """Train what the journal lacks; the cold arm comes first, as it sets the target.

    Args:
        whole: the arms that are trained to the end, for their final score; the others stop at the
            target, or at the end where they do not reach it.
    """
    for pair in pairs:
        parent = trained(pair.parent, journal)
        _note_parent(pair, parent, journal)
        fault = _fault(pair.parent, parent)
        cold = [_trial(pair, Cold(), parent, fault, seed, journal) for seed in seeds]
        target = mean(trial.curve.final for trial in cold)
        for arm in arms:
            for seed in seeds:
                until = None if arm.name in whole else target
                _trial(pair, arm, parent, fault, seed, journal, until)


def trained(network: Network, journal: Trials) -> nn.Module:
    """Return a network with trained weights."""

    def training(module: nn.Module) -> None:
        train(module, network.task, network.recipe, PARENT_SEED)

    return journal.trained(network.key, lambda: built(network.build, PARENT_SEED), training)


def _note_parent(pair: Pair, parent: nn.Module, journal: Trials) -> None:
    if journal.find((pair.name, PARENT_ARM, PARENT_SEED)) is None:
        found = score(parent, pair.child.task) if pair.comparable else float("-inf")
        curve = Curve(steps=(0,), scores=(found,), seconds=0.0)
        trial = Trial(
            pair=pair.name, child=pair.child.key, arm=PARENT_ARM, seed=PARENT_SEED, curve=curve
        )
        journal.add(trial)


def _fault(network: Network, parent: nn.Module) -> str:
    """Return why a zoo that knows the parent's accuracy on its own data refuses it, or ""."""
    task = network.task
    if not isinstance(task, Pictures):
        return ""
    accuracy = score(parent, task)
    chance = chance_limit("accuracy", torch.bincount(task.y).tolist(), len(task.held_out_y))
    if chance is None or accuracy > chance:
        return ""
    return f"its accuracy of {accuracy:.2f} is not above chance"


def _trial(
    pair: Pair,
    arm: Arm,
    parent: nn.Module,
    fault: str,
    seed: int,
    journal: Trials,
    until: float | None = None,
) -> Trial:
    done = journal.find((pair.name, arm.name, seed))
    if done is not None:
        return done
    same = journal.find_cold(pair.child.key, seed) if arm.name == COLD else None
    if same is not None:  # no parent has a part in it
        journal.add(replace(same, pair=pair.name))
        return replace(same, pair=pair.name)
    child, source = built(pair.child.build, seed), deepcopy(parent)  # an arm may change it
    started, refused = perf_counter(), ""
    with drawn_from(seed):
        try:
            if fault and arm.refuses_unlearned:
                raise Refused(fault)
            arm.initialise(child, source, seed, pair.child.task.example())
        except Refused as reason:
            child, refused = built(pair.child.build, seed), str(reason)
    setup_s = perf_counter() - started
    taken = _taken(child, built(pair.child.build, seed))
    slower = taken if arm.gentle else 0.0
    trial = Trial(
        pair=pair.name,
        child=pair.child.key,
        arm=arm.name,
        seed=seed,
        curve=train(child, pair.child.task, pair.child.recipe, seed, until, slower),
        setup_s=setup_s,
        taken=taken,
        refused=refused,
    )
    journal.add(trial)
    return trial


def _taken(child: nn.Module, fresh: nn.Module) -> float:
    """Return the fraction of the parameters' elements that are not the child's own any more."""
    pairs = list(zip(child.parameters(), fresh.parameters(), strict=True))
    return sum(int((a != b).sum()) for a, b in pairs) / sum(a.numel() for a, _ in pairs)
