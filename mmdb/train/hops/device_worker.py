"""A worker's session: performs hops, and keeps mapped partitions and live states between them.

One exists in each PostgreSQL session (in `GD`) and one in each worker process of DuckDB's driver.
It reads no database: partitions are mapped from the node's cache, states come in as bytes.
"""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from mmdb.data import node_cache
from mmdb.errors import (
    EnvironmentChanged,
    PartitionEvicted,
    ReplayMismatch,
    StateCorrupt,
    StateNotFound,
)
from mmdb.train.candidate.setup import setup_of_candidate
from mmdb.train.compute.device import CPU, DevicePartitions, device_of, peak_bytes, reset_peak
from mmdb.train.compute.exact import environment, exact, running_on, stays_out
from mmdb.train.compute.hop import HopOutcome, train_pass, validate_pass
from mmdb.train.compute.live import (
    Live,
    adopt,
    build,
    byte_count,
    encode,
    encoding,
    restore,
    state_hash,
    weights,
)
from mmdb.train.compute.step_times import time_steps
from mmdb.train.group.collectives import Membership
from mmdb.train.group.group_pass import average, group_pass
from mmdb.train.replay.stages import Differs, repeat, train_together
from mmdb.train.stack.stacked_pass import candidate_pass, shape_of_stack, stacked_pass, stacks
from mmdb.train.values.feature_spec import READY, base_in, base_name
from mmdb.train.values.jobs import ExamineSpec, Job, MaterializeSpec, StepTimes
from mmdb.train.values.row_batch import Partition, tensors_in, tensors_of
from mmdb.train.values.spec import CandidateSpec, HopResult, HopSpec, HopStep, Stage
from mmdb.train.warm.first_state import first_state

if TYPE_CHECKING:
    from mmdb.train.compute.feature_executor import FeatureExecutor
    from mmdb.train.values.feature_spec import Examined, Materialized
    from mmdb.train.values.spec import Payload
    from mmdb.train.values.warm_spec import WarmResult, WarmSpec


#: Bytes of live states that a session keeps; the least recently used one goes first.
STATE_BYTES = int(os.environ.get("MMDB_STATE_BYTES", 1 << 30))
#: Partitions that a session keeps mapped; their pages are shared by the node's sessions.
MAPPED_PARTITIONS = int(os.environ.get("MMDB_MAPPED_PARTITIONS", "256"))

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A hop that is to be computed, and the candidate as it finds it."""

    spec: HopSpec
    live: Live
    state_in: str
    load_s: float


class DeviceWorker:
    """Bounded caches of one worker on one device, and the hops that use them."""

    def __init__(self, device: str | None = None) -> None:
        """Args: device: see `device_of`; MMDB_DEVICE, or the CPU, if left out.

        Raises:
            DeviceMissing
        """
        self.device = device_of(device or os.environ.get("MMDB_DEVICE") or "cpu")
        self._on_device = None if self.device == CPU else DevicePartitions(self.device)
        self._partitions: OrderedDict[str, Partition] = OrderedDict()
        self._lives: OrderedDict[int, tuple[str, int, Live]] = OrderedDict()
        self._membership = Membership()

    @cached_property
    def _features(self) -> FeatureExecutor:
        from mmdb.train.compute.feature_executor import (
            FeatureExecutor,  # only where layers are frozen
        )

        return FeatureExecutor(self.device)

    def held(self, candidate_id: int) -> str | None:
        """Return the hash in hex of the candidate's state that is held live, if any."""
        entry = self._lives.get(candidate_id)
        return entry[0] if entry else None

    def all_held(self) -> dict[int, str]:
        """Return `held` of every candidate that has a live state here."""
        return {candidate_id: entry[0] for candidate_id, entry in self._lives.items()}

    def has_partition(self, key: str) -> bool:
        """Return whether the partition is mapped."""
        return key in self._partitions

    def partition(self, key: str) -> Partition:
        """Return features and labels of a partition that is in the node's cache.

        They are on the session's device where they fit, else on the CPU.
        """
        if key in self._partitions:
            self._partitions.move_to_end(key)
        else:
            try:
                decoded = node_cache.map(bytes.fromhex(key))
            except node_cache.NotCached as error:
                raise PartitionEvicted(
                    f"Partition {key[:12]} left the node's cache before it was mapped."
                ) from error
            self._partitions[key] = tensors_of(decoded)
            if len(self._partitions) > MAPPED_PARTITIONS:
                self._partitions.popitem(last=False)
        mapped = self._partitions[key]
        return mapped if self._on_device is None else self._on_device.place(key, mapped)

    def forget(self) -> None:
        """Drop every live state, as a fresh session would."""
        self._lives.clear()

    def perform(
        self, spec: HopSpec, state: bytes | None, stopped: Callable[[], bool] = lambda: False
    ) -> tuple[HopResult, bytes | None]:
        """Run a hop; return what it measured and, where another session may need it, the new state.

        Args:
            state: the encoded state named `spec.base`.
            stopped: asked between steps.
        Raises:
            NotANumber, TrainingFailed, ReplayMismatch, Cancelled, ArchitectureError,
            EnvironmentChanged, StateCorrupt, StateNotFound, PrecisionMissing
        """
        begun = self._begin(spec, state, stopped)
        started = perf_counter()
        outcome, members = self._train(begun.live, spec, begun.state_in, stopped)
        return self._finish(begun, outcome, perf_counter() - started, members)

    def perform_several(
        self,
        specs: Sequence[HopSpec],
        states: Sequence[bytes | None],
        stopped: Callable[[], bool] = lambda: False,
    ) -> list[tuple[HopResult, bytes | None]]:
        """Run hops of several candidates on one partition; those of one shape train in one pass.

        Args: as of `perform`, for each.
        Returns:
            What `perform` returns of each, with its share of the seconds.
        """
        if not all(spec.candidate.stacks and not spec.step.validates for spec in specs):
            pairs = zip(specs, states, strict=True)
            return [self.perform(spec, state, stopped) for spec, state in pairs]
        pairs = zip(specs, states, strict=True)
        begun = [self._begin(spec, state, stopped) for spec, state in pairs]
        alike: dict[object, list[int]] = {}
        for place, one in enumerate(begun):
            alike.setdefault(self._shape(one, place, stopped), []).append(place)
        done: dict[int, tuple[HopResult, bytes | None]] = {}
        for places in alike.values():
            together, started = [begun[place] for place in places], perf_counter()
            outcomes = self._pass_together(together, stopped)
            seconds = (perf_counter() - started) / len(places)
            for place, outcome in zip(places, outcomes, strict=True):
                done[place] = self._finish(begun[place], outcome, seconds, [])
        return [done[place] for place in range(len(specs))]

    def _shape(self, begun: _Begun, place: int, stopped: Callable[[], bool]) -> object:
        """Return what is equal for candidates that train in one pass; `place` of no other one."""
        spec, frozen = begun.spec, begun.spec.candidate.frozen
        x, _ = self._rows(spec.candidate, spec.step.partition, stopped)
        setup = setup_of_candidate(spec.candidate, spec.step.epoch)
        if not stacks(begun.live, setup, x):
            return place
        features = None if frozen is None else replace(frozen, head=None)
        shape = shape_of_stack(begun.live, setup)
        return shape, spec.step.partition, spec.step.ends_epoch, repr(features)

    def _pass_together(
        self, begun: Sequence[_Begun], stopped: Callable[[], bool]
    ) -> list[HopOutcome]:
        if len(begun) == 1:
            return [self._pass(begun[0].live, begun[0].spec.candidate, begun[0].spec.step, stopped)]
        step = begun[0].spec.step
        x, y = self._rows(begun[0].spec.candidate, step.partition, stopped)
        assert isinstance(x, torch.Tensor)  # as `stacks` has found
        return stacked_pass(
            [one.live for one in begun],
            x,
            y,
            setups=[setup_of_candidate(o.spec.candidate, o.spec.step.epoch) for o in begun],
            seeds=[one.spec.step.seed for one in begun],
            ends_epoch=step.ends_epoch,
            stopped=stopped,
        )

    def _begin(self, spec: HopSpec, state: bytes | None, stopped: Callable[[], bool]) -> _Begun:
        """Return a candidate as its hop finds it."""
        started = perf_counter()
        _check_environment(spec, self.device)
        reset_peak(self.device)
        live, state_in = self._take(spec, state)
        for stage in spec.replays:
            state_in = self._repeat(live, spec, stage, stopped)
        if spec.state_in not in (None, state_in):
            raise StateNotFound(
                f"The hop starts from state {spec.state_in[:12]}; {state_in[:12]} was found."
            )
        return _Begun(spec=spec, live=live, state_in=state_in, load_s=perf_counter() - started)

    def _finish(
        self, begun: _Begun, outcome: HopOutcome, compute_s: float, members: list[dict[str, Any]]
    ) -> tuple[HopResult, bytes | None]:
        """Keep what a hop has made of a candidate; return what it measured, and the new state."""
        spec, live, state_in, computed = begun.spec, begun.live, begun.state_in, perf_counter()
        encoded = None if spec.step.validates else encoding(live)
        state_out = state_in if encoded is None else encoded.digest().hex()
        leaves = spec.step.publishes or spec.step.ends_epoch
        left = bytes(encoded) if encoded is not None and leaves else None
        self._keep(spec.candidate.candidate_id, state_out, live)
        result = HopResult(
            rows=outcome.rows,
            steps=outcome.steps,
            loss=outcome.loss,
            metrics=outcome.metrics,
            state_in=state_in,
            state_out=state_out,
            state_bytes=0 if encoded is None else len(encoded),
            load_s=begun.load_s,
            compute_s=compute_s,
            encode_s=perf_counter() - computed,
            device=str(self.device),
            environment=outcome.environment,
            objective=outcome.objective,
            peak_bytes=peak_bytes(self.device),
            members=members,
        )
        return result, left

    def _train(
        self, live: Live, spec: HopSpec, state_in: str, stopped: Callable[[], bool]
    ) -> tuple[HopOutcome, list[dict[str, Any]]]:
        """Train alone, or with a group; return the outcome, and that of each of its members."""
        if spec.group is None:
            return self._pass(live, spec.candidate, spec.step, stopped), []
        x, y = self.partition(spec.step.partition)
        outcomes = group_pass(
            live,
            x,
            y,
            communicator=self._membership.join(spec.group, self.device, stopped),
            state=state_in,
            setup=setup_of_candidate(spec.candidate, spec.step.epoch),
            seed=spec.step.seed,
            ends_epoch=spec.step.ends_epoch,
            stopped=stopped,
        )
        members = [{"rows": o.rows, "steps": o.steps, "loss": o.loss} for o in outcomes]
        return outcomes[spec.group.rank], members

    def _take(self, spec: HopSpec, state: bytes | None) -> tuple[Live, str]:
        """Return the live state before the hop (or before its replays) and its hash.

        Live state leaves the cache before a hop and returns after it, so that what a failed or
        cancelled hop left half done is never used.
        """
        entry = self._lives.pop(spec.candidate.candidate_id, None)
        if entry and entry[0] == spec.state_in:
            return entry[2], entry[0]
        live = self._build(spec.candidate, spec.step.partition, blank=state is not None)
        if state is None:
            return live, state_hash(encode(live)).hex()
        found = state_hash(state).hex()
        if found != spec.base:
            raise StateCorrupt(f"A stored state has the hash {found[:12]}, not {spec.base}.")
        if spec.adopts:
            adopt(live, state)
            return live, state_hash(encode(live)).hex()
        restore(live, state)
        return live, found

    def _build(self, candidate: CandidateSpec, partition: str, *, blank: bool = False) -> Live:
        """Return a candidate with its initial state; with no particular one where it is blank."""
        if candidate.frozen is None and candidate.base is None:
            return build(candidate, self.device)
        shape = None
        if candidate.frozen is not None and candidate.frozen.choice in READY:
            (x,) = tensors_in(self.partition(partition)[0])
            shape = tuple(x.shape[1:])
        backbones = self._features.backbones
        return build(candidate, self.device, backbones, blank=blank, feature_shape=shape)

    def _rows(
        self, candidate: CandidateSpec, partition: str, stopped: Callable[[], bool]
    ) -> Partition:
        """Return what a candidate trains on: the rows of a partition, or features of them."""
        x, y = self.partition(partition)
        if candidate.frozen is None or candidate.frozen.choice != "recomputed":
            return x, y
        return self._features.recomputed(candidate, partition, x, stopped), y

    def _repeat(self, live: Live, spec: HopSpec, stage: Stage, stopped: Callable[[], bool]) -> str:
        candidate = spec.candidate
        try:
            return repeat(
                live,
                stage,
                lambda live, step: self._pass(live, candidate, step, stopped),
                lambda live, steps: self._round(live, candidate, steps, stopped),
            )
        except Differs as difference:
            raise ReplayMismatch(
                f"Replaying hop {difference.step.ordinal} of candidate {candidate.candidate_id} "
                f"gave state {difference.found[:12]}, stored is {difference.stored[:12]}. It ran "
                f"on {difference.step.ran_on}; now on {running_on(self.device)}."
            ) from difference

    def _pass(
        self, live: Live, candidate: CandidateSpec, step: HopStep, stopped: Callable[[], bool]
    ) -> HopOutcome:
        x, y = self._rows(candidate, step.partition, stopped)
        setup = setup_of_candidate(candidate, step.epoch)
        if step.validates:
            return validate_pass(live, x, y, setup=setup, stopped=stopped)
        return candidate_pass(
            candidate,
            live,
            x,
            y,
            setup=setup,
            seed=step.seed,
            ends_epoch=step.ends_epoch,
            partition=self.partition,
            stopped=stopped,
        )

    def _round(
        self,
        live: Live,
        candidate: CandidateSpec,
        steps: tuple[HopStep, ...],
        stopped: Callable[[], bool],
    ) -> None:
        """Train as a group of workers would, in this process alone."""
        parts = [self.partition(step.partition) for step in steps]
        train_together(live, candidate, parts, steps, stopped)

    def time_steps(
        self,
        candidate: CandidateSpec,
        partition: str,
        budget_s: float,
        stopped: Callable[[], bool] = lambda: False,
        members: int = 1,
    ) -> StepTimes:
        """Time steps of a candidate on a partition that is in the node's cache; keep nothing.

        Args:
            members: as many of its kind take steps at once, if it stacks; a step is its share.
        Raises:
            TrainingFailed, Cancelled, ArchitectureError, PartitionEvicted, PrecisionMissing
        """
        x, y = self._rows(candidate, partition, stopped)
        live, setup = self._build(candidate, partition), setup_of_candidate(candidate, 0)
        how: dict[str, Any] = {"setup": setup, "budget_s": budget_s, "stopped": stopped}
        if not (candidate.stacks and isinstance(x, torch.Tensor) and stacks(live, setup, x)):
            return time_steps(
                [live], partial(train_pass, live, x, y, setup=setup, seed=0), x, **how
            )
        lives = [live, *(self._build(candidate, partition) for _ in range(members - 1))]
        setups = [setup] * members
        train = partial(stacked_pass, lives, x, y, setups=setups, seeds=range(members))
        return time_steps(lives, train, x, **how)

    def average(self, states: Sequence[bytes], rows: Sequence[int]) -> tuple[str, bytes]:
        """Return the mean of encoded states, weighted by rows, and before it its hash in hex."""
        mean = average(states, rows)
        return state_hash(mean).hex(), mean

    def warm_start(
        self, spec: WarmSpec, tensors: bytes, resumed: bytes | None = None
    ) -> tuple[WarmResult, bytes]:
        """Return what a candidate begins with; see `mmdb.train.warm.first_state.first_state`.

        A model that states of an adapter leave out is kept, for the hops and for other adapters.

        Args:
            tensors: of the parent; b"" where `spec.base` is kept under `base_name(spec.base)`.
            resumed: the parent's state, whose optimizer goes on.
        """
        if not tensors:
            kept = self._features.backbones.tensors(base_name(spec.base or ""))
            return first_state(
                spec, {path: tensor.to(CPU) for path, tensor in kept.items()}, resumed
            )
        result, state = first_state(spec, weights(tensors), resumed)
        if spec.base is not None and state and (name := base_in(state)) is not None:
            also = [name] if spec.parent.rows.is_same else []
            self._features.backbones.take(base_name(spec.base), tensors, also)
        return result, state

    def has_backbone(self, name: str) -> bool:
        """Return whether the tensors of a model whose layers are frozen are here."""
        return self._features.backbones.has(name)

    def backbone_names(self) -> list[str]:
        """Return the names of the models whose tensors are here."""
        return self._features.backbones.names if "_features" in vars(self) else []

    def take_backbone(self, name: str, tensors: bytes) -> None:
        """Keep the tensors of a model, as `mmdb.train.compute.live.packed` writes them.

        Raises:
            StateCorrupt
        """
        self._features.backbones.take(name, tensors)

    def materialize(
        self, spec: MaterializeSpec, stopped: Callable[[], bool] = lambda: False
    ) -> Materialized:
        """Put features of a partition into the node's cache; see `FeatureExecutor.materialize`."""
        x, _ = self.partition(spec.source)
        return self._features.materialize(spec, x, stopped)

    def examine(self, spec: ExamineSpec) -> Examined:
        """Look at frozen layers; see `mmdb.train.compute.frozen_layers.examine`."""
        x, _ = self.partition(spec.partition)
        return self._features.examine(spec, x)

    def compute(self, job: Job[_R], payload: Payload = ()) -> tuple[_R, bytes | None]:
        """Run a job here and now."""
        return job.run(self, payload, lambda: False)

    def follow(self, work: Callable[[Callable[[], bool]], _T]) -> _T:
        """Run the replay of a recipe here and now."""
        return work(lambda: False)

    def _keep(self, candidate_id: int, state: str, live: Live) -> None:
        self._lives[candidate_id] = (state, byte_count(live), live)
        while len(self._lives) > 1 and sum(e[1] for e in self._lives.values()) > STATE_BYTES:
            self._lives.popitem(last=False)


def _check_environment(spec: HopSpec, device: torch.device) -> None:
    """Refuse to go on in an environment that gives other bits.

    Raises:
        EnvironmentChanged
    """
    with exact(0):
        here = environment(device)
    if spec.environment not in (None, here):
        raise EnvironmentChanged(
            f"Candidate {spec.candidate.candidate_id} was trained with {spec.environment}; "
            f"this worker has {here}."
        )


def warm_up(device: torch.device = CPU) -> str:
    """Pay once what the first step costs: torch's lazy imports and its first optimizer.

    Returns:
        The environment that hops of this process will record.
    """
    stays_out()
    layer = torch.nn.Linear(2, 2, device=device)
    optimizer = torch.optim.Adam(layer.parameters())
    with exact(0, device=device):
        layer(torch.zeros(1, 2, device=device)).sum().backward()
        optimizer.step()
        found = environment(device)
    gc.freeze()  # all of this stays: searches for garbage, which now are short, come more often
    return found
