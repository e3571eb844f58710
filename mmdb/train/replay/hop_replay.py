"""Hops done again, and the features of the frozen backbones that they train on."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import nn

from mmdb.data.dataset import find_decoding
from mmdb.data.feature_files import unpack_features
from mmdb.data.functions import find_factories, find_functions
from mmdb.data.reader import read_partition
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import (
    BackboneMissing,
    BlockCorrupt,
    DatasetDropped,
    EnvironmentDiffers,
    HopError,
    ModelNotFound,
    NotReplayable,
    ReplayMismatch,
    StateCorrupt,
)
from mmdb.graph.grouped import Grouped
from mmdb.store.stored_features import find_of_run, read_blocks
from mmdb.train.candidate.setup import Setup, setup_of_candidate
from mmdb.train.compute.backbone import Backbones
from mmdb.train.compute.device import CPU, device_like
from mmdb.train.compute.exact import environment, exact, neutral, running_on
from mmdb.train.compute.feature_pass import features_of
from mmdb.train.compute.live import Live, adopt, build, restore, state_hash
from mmdb.train.compute.trainable_head import whole_module
from mmdb.train.ledger.state_history import Located, history, locate
from mmdb.train.replay.stages import Differs, repeat, train_together
from mmdb.train.stack.stacked_pass import candidate_pass
from mmdb.train.values.feature_spec import ON_FEATURES, READY, base_hash, ids_of
from mmdb.train.values.row_batch import Partition, tensors_of
from mmdb.train.values.spec import CandidateSpec, HopStep, Stage


def read_backbones(
    connection: Connection,
    candidate: CandidateSpec,
    *,
    begins: bool = False,
    follow: Callable[..., Any] | None = None,
) -> Backbones | None:
    """Return where a candidate's network with frozen layers, or the tensors that it adapts, can be
    had; None: it has no such.

    Args:
        begins: whether its initial state is wanted; any other of the choice "whole" is complete.
        follow: runs the replay of a model that is kept as a recipe.
    Raises:
        BackboneMissing, CorruptTensor, RecipeError
    """
    frozen, backbones = candidate.frozen, Backbones()
    if candidate.base is not None:
        backbones.take(candidate.base, read_backbone(connection, candidate, follow=follow))
        return backbones
    if frozen is None:
        return None
    if frozen.backbone is not None and (begins or frozen.choice != "whole"):
        backbones.take(frozen.backbone, read_backbone(connection, candidate, follow=follow))
    return backbones


def read_backbone(
    connection: Connection, candidate: CandidateSpec, *, follow: Callable[..., Any] | None = None
) -> bytes:
    """Return the tensors of the model whose layers a candidate freezes, or that it adapts, packed,
    in the order of the columns of the candidate's dataset.

    Raises:
        BackboneMissing, BackboneMismatch, CorruptTensor, RecipeError
    """
    from mmdb.train.compute.backbone import network_of
    from mmdb.train.compute.sorted_rows import by_name
    from mmdb.train.replay.parent_models import example_of, model_and_weights, packed_weights

    model_id, dataset_id = _backbone_ids(connection, candidate)
    decoding = find_decoding(connection, dataset_id)
    given = {} if follow is None else {"follow": follow}
    try:
        model, weights = model_and_weights(
            connection, candidate.factories, model_id, decoding=decoding, **given
        )
        moved = by_name(
            model, weights, example_of(decoding).inputs(), lambda: network_of(candidate, 0)
        )
        return packed_weights(model, moved)
    except (ModelNotFound, NotReplayable) as error:
        raise BackboneMissing(
            f"Candidate {candidate.candidate_id} freezes layers of a model that is gone: "
            f"{error.message}"
        ) from error


def _backbone_ids(connection: Connection, candidate: CandidateSpec) -> tuple[int, int]:
    """Return the ids of a candidate's backbone or base, and of the dataset whose columns it reads.

    Raises:
        BackboneMissing
    """
    if candidate.base is None:
        assert candidate.frozen is not None and candidate.frozen.backbone is not None
        return ids_of(candidate.frozen.backbone)
    found = connection.rows(
        load("warm").find_base,
        weights_hash=base_hash(candidate.base),
        candidate_id=candidate.candidate_id,
    )
    if not found:
        raise BackboneMissing(
            f"The model that candidate {candidate.candidate_id} adapts was dropped."
        )
    return found[0]["model_id"], found[0]["dataset_id"]


def read_features(
    connection: Connection, candidate: CandidateSpec, row: Row, part_id: int
) -> np.ndarray | None:
    """Return a partition's features, float32 (n, *shape); None where they are not stored.

    Also None where the candidate does not train on them, though others of its run may.

    Args:
        row: of `find_candidate`.
    Raises:
        FeatureCorrupt
    """
    feature_id = row.get("feature_id")
    if feature_id is None or candidate.frozen is None or candidate.frozen.choice not in READY:
        return None
    features = find_of_run(connection, row["run_id"])
    (own,) = [one for one in features if one.feature_id == feature_id]
    blocks = read_blocks(connection, feature_id, part_id)
    chunks = [unpack_features(block, own.shape, own.storage) for block in blocks]
    return np.concatenate(chunks) if chunks else None


_T = TypeVar("_T")
Stopped = Callable[[], bool]


def at_once(work: Callable[[Stopped], _T]) -> _T:
    """Run `work(stopped)` here and now; inside PostgreSQL it must be interruptible instead."""
    return work(lambda: False)


class EpochState(NamedTuple):
    """A candidate's module at the end of an epoch, in evaluation mode."""

    epoch: int
    module: nn.Module
    rate: float  # of learning, when its last stage began


@dataclass(frozen=True, slots=True, kw_only=True)
class HopReplay:
    """Everything that a replay needs, out of the database.

    Attributes:
        model: name@version, for messages.
        hops: by ordinal: who did them, and where.
        partitions: rows by key, or stored features of them where `featured` has the key.
        backbones: of a candidate with frozen layers, on the CPU.
        device: where hops are done again: one that is like theirs, if there is one.
        placed: the backbones on that device.
    """

    model: str
    candidate: CandidateSpec
    hops: dict[int, Row]
    located: Located
    partitions: dict[str, Partition]
    featured: set[str] = field(default_factory=set)
    backbones: Backbones | None = None
    device: torch.device = CPU
    placed: Backbones | None = None

    def run(
        self, stopped: Stopped, after: Callable[[Stage, Live], object] = lambda stage, live: None
    ) -> nn.Module:
        """Return the module as its last hop left it, on the CPU. No I/O.

        Args:
            after: called after each stage that is done again.
        Raises:
            ReplayMismatch: with the first hop that gives another state.
            StateCorrupt: the checkpoint is damaged. Cancelled
        """
        setup_of_epoch = cache(partial(setup_of_candidate, self.candidate))

        def train(live: Live, step: HopStep) -> None:
            self._train(live, step, setup_of_epoch(step.epoch), stopped)

        def train_group(live: Live, steps: tuple[HopStep, ...]) -> None:
            parts = [self.partitions[step.partition] for step in steps]
            train_together(live, self.candidate, parts, steps, stopped)

        with neutral(self.candidate.seed):
            live = self._start()
            for stage in self.located.replays:
                try:
                    repeat(live, stage, train, train_group)
                except Differs as difference:
                    what = f"gave state {difference.found[:12]}, stored is {difference.stored[:12]}"
                    raise self._mismatch(difference.step, what) from difference
                after(stage, live)
            return self._whole(live.module.to(CPU))

    def epochs(self, ends: Mapping[str, int], stopped: Stopped) -> list[EpochState]:
        """Return the module as the stages that leave some states left it, in their order. No I/O.

        Args:
            ends: the epochs of these states, by their hashes.
        Raises: see `run`.
        """
        found: dict[str, EpochState] = {}
        rates: list[float] = []  # that stages have left for the next one

        def keep(stage: Stage, live: Live) -> None:
            rates.append(float(live.optimizer.param_groups[0]["lr"]))
            epoch = ends.get(stage.state_out)
            if epoch is not None:
                module = self._whole(copy.deepcopy(live.module).to(CPU)).eval()
                scale = setup_of_candidate(self.candidate, epoch).lr_scale
                found[stage.state_out] = EpochState(epoch, module, rates[-2:][0] * scale)

        self.run(stopped, keep)
        return [*found.values()]

    def _whole(self, module: nn.Module) -> nn.Module:
        """Return what inputs pass from end to end."""
        if isinstance(module, Grouped):
            return module.settle()
        if self.backbones is None:
            return module
        return whole_module(self.candidate, module, self.backbones)

    def _start(self) -> Live:
        is_blank = self.located.state is not None
        live = build(self.candidate, self.device, self.placed, blank=is_blank)
        if self.located.state is not None:
            found = state_hash(self.located.state).hex()
            if found != self.located.base:
                raise StateCorrupt(
                    f"A checkpoint of candidate {self.candidate.candidate_id} has the hash "
                    f"{found[:12]}, not {(self.located.base or '')[:12]}."
                )
            (adopt if self.located.adopts else restore)(live, self.located.state)
        return live

    def _train(self, live: Live, step: HopStep, setup: Setup, stopped: Stopped) -> None:
        x, y = self._rows(step.partition, stopped)
        try:
            candidate_pass(
                self.candidate,
                live,
                x,
                y,
                setup=setup,
                seed=step.seed,
                ends_epoch=step.ends_epoch,
                partition=self.partitions.__getitem__,
                stopped=stopped,
            )
        except HopError as error:  # which the hop itself did not meet
            raise self._mismatch(step, f"failed: {error.message}") from error

    def _rows(self, key: str, stopped: Stopped) -> Partition:
        """Return what the candidate trains on: rows, or features, which are computed once."""
        x, y = self.partitions[key]
        frozen = self.candidate.frozen
        if frozen is None or frozen.choice not in ON_FEATURES or key in self.featured:
            return x, y
        assert self.placed is not None
        layers = self.placed.of(self.candidate).prefix(frozen.cut, frozen.pool)
        found = features_of(layers, x, frozen.storage, device=self.device, stopped=stopped)
        self.partitions[key] = found.to(CPU), y
        self.featured.add(key)
        return self.partitions[key]

    def _mismatch(self, step: HopStep, what: str) -> ReplayMismatch:
        hop = self.hops[step.ordinal]
        return ReplayMismatch(
            f"{self.hop_name(step)} {what}. Worker {hop['worker']!r} on node {hop['node']!r} "
            f"did it on {step.ran_on}; here it was done on {running_on(self.device)}."
        )

    @property
    def steps(self) -> list[HopStep]:
        """Every hop that is done again."""
        return [step for stage in self.located.replays for step in stage.steps]

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
    return compute(_prepare(connection, model, candidate_id, epoch).run)


def replay_epochs(
    connection: Connection,
    model: str,
    candidate_id: int,
    epoch: int,
    count: int,
    compute: Callable[[Callable[[Stopped], list[EpochState]]], list[EpochState]] = at_once,
) -> list[EpochState]:
    """Return a candidate's module at the ends of epochs that are spread evenly up to one.

    It trains anew from its beginning: of the states in between few are kept.

    Args:
        count: of epochs, the last of which is `epoch`; fewer where there are not so many.
    Raises: see `replay_hops`.
    """
    prepared = _prepare(connection, model, candidate_id, epoch, is_whole=True)
    last = {stage.steps[0].epoch: stage.state_out for stage in prepared.located.replays}
    wanted = {math.ceil(k * (epoch + 1) / count) - 1 for k in range(1, count + 1)}
    return compute(partial(prepared.epochs, {last[e]: e for e in sorted(wanted)}))


def _prepare(
    connection: Connection, model: str, candidate_id: int, epoch: int, *, is_whole: bool = False
) -> HopReplay:
    """Return what leads to the end of an epoch, with all that is to be read.

    Args:
        is_whole: from the candidate's beginning, not from the nearest state that is kept.
    """
    queries = load("hops")
    (row,) = connection.rows(queries.find_candidate, candidate_id=candidate_id)
    parts = connection.rows(queries.find_partitions, dataset_id=row["dataset_id"])
    hops = connection.rows(load("recipes").find_recipe_hops, candidate_id=candidate_id, epoch=epoch)
    _check_complete(model, hops, parts, epoch)
    factories, functions = find_factories(connection), find_functions(connection)
    candidate = CandidateSpec.from_row(row, factories, functions).comparing(parts)
    if is_whole:
        done = history(connection, row, parts)
        replays = tuple(stage for stage in done if stage.steps[0].epoch <= epoch)
        located = replace(locate(connection, None, row, parts, None), replays=replays)
    else:
        located = locate(connection, None, row, parts, _wanted(connection, row, parts, epoch))
    candidate = candidate.over(located.state)
    backbones, device = read_backbones(connection, candidate, begins=located.state is None), CPU
    by_ordinal = {hop["ordinal"]: hop for hop in hops}
    if located.replays:  # a candidate's hops are of one environment, unless any will do
        last = by_ordinal[located.replays[-1].steps[-1].ordinal]
        device = device_like(last["device"], last["environment"])
    prepared = HopReplay(
        model=model,
        candidate=candidate,
        hops=by_ordinal,
        located=located,
        partitions={},
        backbones=backbones,
        device=device,
        placed=None if backbones is None else backbones.on(device),
    )
    _warn(prepared)
    if candidate.held_out is not None:
        part_id, key = candidate.held_out
        held_out = read_partition(connection, part_id, bytes.fromhex(key))
        prepared.partitions[key] = tensors_of(held_out)
    for step in prepared.steps:
        if step.partition not in prepared.partitions:
            x, y = _read(connection, prepared, step)
            features = read_features(connection, candidate, row, step.part_id)
            if features is not None:
                prepared.featured.add(step.partition)
            given = x if features is None else torch.from_numpy(features)
            prepared.partitions[step.partition] = given, y
    return prepared


def _wanted(connection: Connection, candidate: Row, parts: Sequence[Row], epoch: int) -> str:
    """Return the hash of the state that an epoch ended with."""
    stages = history(connection, candidate, parts)
    return [stage.state_out for stage in stages if stage.steps[0].epoch == epoch][-1]


def _check_complete(model: str, hops: Sequence[Row], parts: Sequence[Row], epoch: int) -> None:
    wanted = (epoch + 1) * sum(part["role"] == "train" for part in parts)
    if len(hops) != wanted:
        raise NotReplayable(
            f"Model {model} cannot be made again: {len(hops)} of its {wanted} hops are recorded.",
            hint="Rows of mmdb.hop were deleted; restore the database's backup.",
        )


def _read(connection: Connection, prepared: HopReplay, step: HopStep) -> Partition:
    try:
        decoded = read_partition(connection, step.part_id, bytes.fromhex(step.partition))
    except DatasetDropped as error:
        raise NotReplayable(
            f"Model {prepared.model} cannot be made again: {error.message}",
            hint="Dropping the dataset by force gave the model up; restore the database's backup.",
        ) from error
    except BlockCorrupt as error:
        raise BlockCorrupt(f"{prepared.hop_name(step)}: {error.message}") from error
    return tensors_of(decoded)


def _warn(prepared: HopReplay) -> None:
    """Warn where hops that are to be replayed ran in another environment."""
    with exact(0):
        now = environment(prepared.device)
    environments = {prepared.hops[step.ordinal]["environment"] for step in prepared.steps}
    if others := sorted(environments - {now}):
        warnings.warn(
            f"Model {prepared.model} was trained with {'; '.join(others)}; here is {now}. "
            "Its hops are replayed all the same, and each is compared.",
            EnvironmentDiffers,
            stacklevel=2,
        )
