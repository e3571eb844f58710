"""A worker's session: performs hops, and keeps mapped partitions and live states between them.

One exists in each PostgreSQL session (in `GD`) and one in each worker process of DuckDB's driver.
It reads no database: partitions are mapped from the node's cache, states come in as bytes.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter

import torch

from mmdb.data import node_cache
from mmdb.errors import (
    EnvironmentChanged,
    PartitionEvicted,
    ReplayMismatch,
    StateCorrupt,
    StateNotFound,
)
from mmdb.graph.build import initial_module
from mmdb.train.config import parse_config
from mmdb.train.hop import Outcome, environment, exact, train_pass, validate_pass
from mmdb.train.live import Live, build_live, byte_count, encode, restore, state_hash
from mmdb.train.spec import CandidateSpec, HopResult, HopSpec, HopStep

#: Bytes of live states that a session keeps; the least recently used one goes first.
STATE_BYTES = int(os.environ.get("MMDB_STATE_BYTES", 1 << 30))
#: Partitions that a session keeps mapped; their pages are shared by the node's sessions.
MAPPED_PARTITIONS = int(os.environ.get("MMDB_MAPPED_PARTITIONS", "256"))

Partition = tuple[torch.Tensor, torch.Tensor]


class Session:
    """Bounded caches of one worker, and the hops that use them."""

    def __init__(self) -> None:
        self._partitions: OrderedDict[str, Partition] = OrderedDict()
        self._lives: OrderedDict[int, tuple[str, int, Live]] = OrderedDict()

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

    def map_partition(self, key: str) -> None:
        """Map a partition that is in the node's cache."""
        self.partition(key)

    def partition(self, key: str) -> Partition:
        """Return features and labels of a partition that is in the node's cache."""
        if key in self._partitions:
            self._partitions.move_to_end(key)
        else:
            try:
                x, y = node_cache.map(bytes.fromhex(key))
            except node_cache.NotCached as error:
                raise PartitionEvicted(
                    f"Partition {key[:12]} left the node's cache before it was mapped."
                ) from error
            self._partitions[key] = torch.from_numpy(x), torch.from_numpy(y)
            if len(self._partitions) > MAPPED_PARTITIONS:
                self._partitions.popitem(last=False)
        return self._partitions[key]

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
            EnvironmentChanged, StateCorrupt, StateNotFound
        """
        started = perf_counter()
        _check_environment(spec)
        live, state_in = self._take(spec, state)
        for replayed in spec.replays:
            state_in = self._replay(live, spec, replayed, stopped)
        if spec.state_in not in (None, state_in):
            raise StateNotFound(
                f"The hop starts from state {spec.state_in[:12]}; {state_in[:12]} was found."
            )
        loaded = perf_counter()
        outcome = self._pass(live, spec.candidate, spec.step, stopped)
        computed = perf_counter()
        encoded = None if spec.step.validates else encode(live)
        state_out = state_in if encoded is None else state_hash(encoded).hex()
        self._keep(spec.candidate.candidate_id, state_out, live)
        result = HopResult(
            rows=outcome.rows,
            steps=outcome.steps,
            loss=outcome.loss,
            metrics=outcome.metrics,
            state_in=state_in,
            state_out=state_out,
            state_bytes=len(encoded or b""),
            load_s=loaded - started,
            compute_s=computed - loaded,
            encode_s=perf_counter() - computed,
            device="cpu",
            environment=outcome.environment,
        )
        leaves = spec.step.publishes or spec.step.ends_epoch
        return result, encoded if leaves else None

    def _take(self, spec: HopSpec, state: bytes | None) -> tuple[Live, str]:
        """Return the live state before the hop (or before its replays) and its hash.

        Live state leaves the cache before a hop and returns after it, so that what a failed or
        cancelled hop left half done is never used.
        """
        entry = self._lives.pop(spec.candidate.candidate_id, None)
        if entry and entry[0] == spec.state_in:
            return entry[2], entry[0]
        live = build(spec.candidate)
        if state is None:
            return live, state_hash(encode(live)).hex()
        found = state_hash(state).hex()
        if found != spec.base:
            raise StateCorrupt(f"A stored state has the hash {found[:12]}, not {spec.base}.")
        restore(live, state)
        return live, found

    def _replay(self, live: Live, spec: HopSpec, step: HopStep, stopped: Callable[[], bool]) -> str:
        self._pass(live, spec.candidate, step, stopped)
        found = state_hash(encode(live)).hex()
        if found != step.state_out:
            raise ReplayMismatch(
                f"Replaying hop {step.ordinal} of candidate {spec.candidate.candidate_id} gave "
                f"state {found[:12]}, stored is {(step.state_out or '')[:12]} ({environment()})."
            )
        return found

    def _pass(
        self, live: Live, candidate: CandidateSpec, step: HopStep, stopped: Callable[[], bool]
    ) -> Outcome:
        x, y = self.partition(step.partition)
        config = parse_config(candidate.config, candidate.task)
        if step.validates:
            return validate_pass(live, x, y, config=config, task=candidate.task, stopped=stopped)
        return train_pass(
            live,
            x,
            y,
            config=config,
            task=candidate.task,
            seed=step.seed,
            ends_epoch=step.ends_epoch,
            stopped=stopped,
        )

    def _keep(self, candidate_id: int, state: str, live: Live) -> None:
        self._lives[candidate_id] = (state, byte_count(live), live)
        while len(self._lives) > 1 and sum(e[1] for e in self._lives.values()) > STATE_BYTES:
            self._lives.popitem(last=False)


def _check_environment(spec: HopSpec) -> None:
    """Refuse to go on in an environment that gives other bits.

    Raises:
        EnvironmentChanged
    """
    with exact(0):
        here = environment()
    if spec.environment not in (None, here):
        raise EnvironmentChanged(
            f"Candidate {spec.candidate.candidate_id} was trained with {spec.environment}; "
            f"this worker has {here}."
        )


def warm_up() -> str:
    """Pay once what the first step costs: torch's lazy imports and its first optimizer.

    Returns:
        The environment that hops of this process will record.
    """
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    with exact(0):
        layer(torch.zeros(1, 2)).sum().backward()
        optimizer.step()
        return environment()


def build(candidate: CandidateSpec) -> Live:
    """Return a candidate with its initial state, which its seed alone decides."""
    config = parse_config(candidate.config, candidate.task)
    module = initial_module(
        candidate.architecture,
        config.arguments,
        candidate.input_shape,
        candidate.outputs,
        candidate.factories,
        seed=candidate.seed,
    )
    return build_live(module, config)
