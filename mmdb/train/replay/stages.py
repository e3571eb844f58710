"""Repeats a stage of a candidate's history in one process, to the same bits. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mmdb.errors import Cancelled
from mmdb.train.candidate.setup import Setup, setup_of_candidate
from mmdb.train.compute.device import CPU, generator_of, set_generator
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.hop import HopOutcome, Learner, Total, blaming_the_model
from mmdb.train.compute.live import Live, build, encode, restore, state_hash
from mmdb.train.compute.optimizer import Portion
from mmdb.train.group.collectives import in_rank_order
from mmdb.train.group.group_pass import Gradients, average, group_plan, merge, ready_scaler, result
from mmdb.train.values.row_batch import Inputs, Labels, row_count, tensors_in
from mmdb.train.values.spec import CandidateSpec, HopStep, Stage


class _Rank:
    """One rank of a replayed group: its replica, its rows, and its random generators."""

    def __init__(
        self, live: Live, x: Inputs, y: Labels, setup: Setup, seed: int, rows: Sequence[int], k: int
    ) -> None:
        self.live, self._rows, self._total = live, row_count(x), Total()
        self._gradients = Gradients(live.module)
        live.module.train()
        ready_scaler(live)
        with exact(seed, device=live.device):
            self._learner = Learner(live, setup, x, y, seed)
            order = torch.randperm(self._rows).to(tensors_in(x)[0].device)
            config = setup.config
            self.plan = group_plan(rows, k, config.batch_size, config.accumulate)(order)
            self._random = _random(live.device)

    def backward(self, portions: Sequence[Portion]) -> list[Tensor]:
        """Return the packed gradients of a step."""
        devices = dict.fromkeys((CPU, self.live.device))
        for device, state in zip(devices, self._random, strict=True):
            set_generator(device, state)
        self._learner.backward(portions, self._total)
        self._random = _random(self.live.device)
        return self._gradients.pack()

    def update(self, sums: Sequence[Tensor]) -> None:
        """Step with the summed gradients."""
        self._gradients.unpack(sums)
        self._learner.update()

    def end(self, ends_epoch: bool) -> bytes:
        """Return what the rank would tell the others."""
        if ends_epoch:
            self._learner.end_epoch()
        self.live.optimizer.zero_grad()
        self.live.generator = self._random[0]
        outcome = HopOutcome(
            rows=self._rows,
            steps=len(self.plan),
            loss=self._total.mean(),
            metrics={},
            environment=environment(self.live.device),
        )
        return result(self.live, outcome)


def replay_group(
    lives: Sequence[Live],
    parts: Sequence[tuple[Inputs, Labels]],
    *,
    setup: Setup,
    seeds: Sequence[int],
    ends_epoch: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[HopOutcome, ...]:
    """Train replicas of a candidate in place as a group of as many ranks would; see `group_pass`.

    Args:
        lives: one for each rank, all in the state before the pass; all end in the state after it.
        parts: rows of the partitions, in rank order.
        seeds: of the partitions' hops, in rank order.
    Raises:
        TrainingFailed, Cancelled
    """
    rows = [row_count(x) for x, _ in parts]
    with exact(0, device=lives[0].device), blaming_the_model():
        ranks = [
            _Rank(live, x, y, setup, seed, rows, k)
            for k, (live, (x, y), seed) in enumerate(zip(lives, parts, seeds, strict=True))
        ]
        for step in zip(*(rank.plan for rank in ranks), strict=True):
            if stopped():
                raise Cancelled("The hop was cancelled.")
            packed = [rank.backward(part) for rank, part in zip(ranks, step, strict=True)]
            sums = [in_rank_order(flats) for flats in zip(*packed, strict=True)]
            for rank in ranks:
                # each its own copy: clipping changes gradients in place
                rank.update([flat.clone() for flat in sums])
        results = [rank.end(ends_epoch) for rank in ranks]
        outcomes = [merge(live, results) for live in lives]
    return outcomes[0]


def _random(device: torch.device) -> tuple[Tensor, ...]:
    """Return the states of the generators that a hop on a device draws from."""
    return tuple(generator_of(one) for one in dict.fromkeys((CPU, device)))


#: Trains a live state for one hop, in place.
Pass = Callable[[Live, HopStep], object]
#: Trains a live state for one round of a group, in place.
GroupRound = Callable[[Live, tuple[HopStep, ...]], object]


class Differs(Exception):
    """A stage left another state than it did before."""

    def __init__(self, step: HopStep, found: str, stored: str) -> None:
        super().__init__(found, stored)
        self.step, self.found, self.stored = step, found, stored


def train_together(
    live: Live,
    candidate: CandidateSpec,
    parts: Sequence[tuple[Inputs, Labels]],
    steps: Sequence[HopStep],
    stopped: Callable[[], bool],
) -> None:
    """Train `live` in place as a group would, each rank on one of `parts`, in this process."""
    state = encode(live)
    replicas = [live]
    for _ in steps[1:]:
        replicas.append(build(candidate, live.device))
        restore(replicas[-1], state)
    replay_group(
        replicas,
        parts,
        setup=setup_of_candidate(candidate, steps[0].epoch),
        seeds=[step.seed for step in steps],
        ends_epoch=steps[0].ends_epoch,
        stopped=stopped,
    )


def repeat(live: Live, stage: Stage, train: Pass, train_group: GroupRound) -> str:
    """Take `live` from the state before a stage to the one after it; return its hash in hex.

    Raises:
        Differs: it is not the state that is recorded.
    """
    if stage.kind == "average":
        _average(live, stage, train)
    elif stage.kind == "group":
        train_group(live, stage.steps)
    else:
        train(live, stage.steps[0])
    return _checked(encode(live), stage.steps[-1], stage.state_out)


def _average(live: Live, stage: Stage, train: Pass) -> None:
    before = encode(live)
    found = []
    for step in stage.steps:
        restore(live, before)
        train(live, step)
        found.append(encode(live))
        _checked(found[-1], step, step.state_out or "")
    restore(live, average(found, [step.rows for step in stage.steps]))


def _checked(state: bytes, step: HopStep, stored: str) -> str:
    found = state_hash(state).hex()
    if found != stored:
        raise Differs(step, found, stored)
    return found
