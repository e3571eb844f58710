"""A run's model made again: from its nearest durable checkpoint, or its seed, hop by hop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from mmdb.data.reader import read_partition
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import (
    BlockCorrupt,
    DatasetDropped,
    EnvironmentDiffers,
    HopError,
    NotReplayable,
    ReplayMismatch,
    StateCorrupt,
)
from mmdb.train.config import Config, parse_config
from mmdb.train.generators import neutral
from mmdb.train.hop import environment, exact, train_pass
from mmdb.train.live import Live, encode, restore, state_hash
from mmdb.train.recovery import Located, locate
from mmdb.train.session import Partition, build
from mmdb.train.spec import CandidateSpec, HopStep

_T = TypeVar("_T")
Stopped = Callable[[], bool]


def at_once(work: Callable[[Stopped], _T]) -> _T:
    """Run `work(stopped)` here and now; inside PostgreSQL it must be interruptible instead."""
    return work(lambda: False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopReplay:
    """Everything that a replay needs, out of the database."""

    model: str  # name@version, for messages
    candidate: CandidateSpec
    hops: dict[int, Row]  # by ordinal: who did them, and where
    located: Located
    partitions: dict[str, Partition]

    def run(self, stopped: Stopped) -> nn.Module:
        """Return the module as its last hop left it. No I/O.

        Raises:
            ReplayMismatch: with the first hop that gives another state.
            StateCorrupt: the checkpoint is damaged. Cancelled
        """
        config = parse_config(self.candidate.config, self.candidate.task)
        with neutral(self.candidate.seed):
            live = self._start()
            for step in self.located.replays:
                self._repeat(live, step, config, stopped)
        return live.module

    def _start(self) -> Live:
        live = build(self.candidate)
        if self.located.state is not None:
            found = state_hash(self.located.state).hex()
            if found != self.located.base:
                raise StateCorrupt(
                    f"A checkpoint of candidate {self.candidate.candidate_id} has the hash "
                    f"{found[:12]}, not {(self.located.base or '')[:12]}."
                )
            restore(live, self.located.state)
        return live

    def _repeat(self, live: Live, step: HopStep, config: Config, stopped: Stopped) -> None:
        x, y = self.partitions[step.partition]
        try:
            train_pass(
                live,
                x,
                y,
                config=config,
                task=self.candidate.task,
                seed=step.seed,
                ends_epoch=step.ends_epoch,
                stopped=stopped,
            )
        except HopError as error:  # which the hop itself did not meet
            raise self._mismatch(step, f"failed: {error.message}") from error
        found = state_hash(encode(live)).hex()
        if found != step.state_out:
            stored = (step.state_out or "")[:12]
            raise self._mismatch(step, f"gave state {found[:12]}, stored is {stored}")

    def _mismatch(self, step: HopStep, what: str) -> ReplayMismatch:
        hop = self.hops[step.ordinal]
        with exact(0):
            here = environment()
        return ReplayMismatch(
            f"{self.hop_name(step)} {what}. Worker {hop['worker']!r} on node {hop['node']!r} "
            f"did it with {hop['environment']}; here is {here}."
        )

    def hop_name(self, step: HopStep) -> str:
        """Return which hop a step is."""
        hop = self.hops[step.ordinal]
        return (
            f"Model {self.model}, hop {step.ordinal} of candidate "
            f"{self.candidate.candidate_id} (epoch {step.epoch}, partition {hop['partition']})"
        )


def replay_hops(
    connection: Connection,
    model: str,
    candidate_id: int,
    epoch: int,
    compute: Callable[[Callable[[Stopped], nn.Module]], nn.Module] = at_once,
) -> nn.Module:
    """Return a candidate's module as it was at the end of an epoch.

    Args:
        model: name@version, for messages.
        compute: runs what it is given; partitions are read before.
    Raises:
        NotReplayable: the dataset or a hop's row is gone.
        ReplayMismatch, BlockCorrupt: with the hop that differs, or whose rows are damaged.
    """
    queries = load("hops")
    (row,) = connection.rows(queries.find_candidate, candidate_id=candidate_id)
    parts = connection.rows(queries.find_partitions, dataset_id=row["dataset_id"])
    hops = connection.rows(load("recipes").find_recipe_hops, candidate_id=candidate_id, epoch=epoch)
    _check_complete(model, hops, parts, epoch)
    factories = connection.rows(load("catalog").find_factories)
    prepared = HopReplay(
        model=model,
        candidate=CandidateSpec.from_row(row, {f["name"]: f["target"] for f in factories}),
        hops={hop["ordinal"]: hop for hop in hops},
        located=locate(connection, candidate_id, parts, hops[-1]["state_out"].hex()),
        partitions={},
    )
    _warn(prepared)
    for step in prepared.located.replays:
        if step.partition not in prepared.partitions:
            prepared.partitions[step.partition] = _read(connection, prepared, step)
    return compute(prepared.run)


def _check_complete(model: str, hops: Sequence[Row], parts: Sequence[Row], epoch: int) -> None:
    wanted = (epoch + 1) * sum(part["role"] == "train" for part in parts)
    if len(hops) != wanted:
        raise NotReplayable(
            f"Model {model} cannot be made again: {len(hops)} of its {wanted} hops are recorded.",
            hint="Rows of mmdb.hop were deleted; restore the database's backup.",
        )


def _read(connection: Connection, prepared: HopReplay, step: HopStep) -> Partition:
    try:
        x, y = read_partition(connection, step.part_id, bytes.fromhex(step.partition))
    except DatasetDropped as error:
        raise NotReplayable(
            f"Model {prepared.model} cannot be made again: {error.message}",
            hint="Dropping the dataset by force gave the model up; restore the database's backup.",
        ) from error
    except BlockCorrupt as error:
        raise BlockCorrupt(f"{prepared.hop_name(step)}: {error.message}") from error
    return torch.from_numpy(x), torch.from_numpy(y)


def _warn(prepared: HopReplay) -> None:
    """Warn where hops that are to be replayed ran in another environment."""
    with exact(0):
        here = environment()
    steps = prepared.located.replays
    others = {prepared.hops[step.ordinal]["environment"] for step in steps} - {here}
    if others:
        warnings.warn(
            f"Model {prepared.model} was trained with {'; '.join(sorted(others))}; here is {here}. "
            "Its hops are replayed all the same, and each is compared.",
            EnvironmentDiffers,
            stacklevel=2,
        )
