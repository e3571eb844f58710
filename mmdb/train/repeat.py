"""A stage of a candidate's history done again, so as to have the state that it left. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mmdb.train.batch import Inputs, Labels
from mmdb.train.candidate.setup import setup_of_candidate
from mmdb.train.compute.initial import build
from mmdb.train.compute.live import Live, encode, restore, state_hash
from mmdb.train.parallel.average import average
from mmdb.train.parallel.replay import replay_group
from mmdb.train.spec import CandidateSpec, HopStep, Stage

#: Trains a live state for one hop, in place.
Pass = Callable[[Live, HopStep], object]
#: Trains a live state for one round of a group, in place.
Round = Callable[[Live, tuple[HopStep, ...]], object]


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


def repeat(live: Live, stage: Stage, train: Pass, train_group: Round) -> str:
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
