"""What a worker needs to perform a hop, as plain values that travel between processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mmdb.db.connection import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSpec:
    """A candidate, complete: it can be built from this alone."""

    candidate_id: int
    architecture: dict[str, Any]
    config: dict[str, Any]
    factories: dict[str, str]
    input_shape: tuple[int, ...]
    outputs: int
    task: str
    seed: int

    @classmethod
    def from_row(cls, row: Row, factories: Mapping[str, str]) -> CandidateSpec:
        """Return the candidate of a row of `find_candidate`; factories: name -> target."""
        classes = row["classes"]
        return cls(
            candidate_id=row["candidate_id"],
            architecture=json.loads(row["architecture"]),
            config=json.loads(row["config"]),
            factories=dict(factories),
            input_shape=tuple(row["input_shape"]),
            outputs=len(json.loads(classes)) if classes else 1,
            task=row["task"],
            seed=row["seed"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HopStep:
    """One visit to a partition."""

    part_id: int
    partition: str  # content hash in hex: the key of the node's cache
    epoch: int
    ordinal: int  # place in the candidate's order
    seed: int
    validates: bool
    ends_epoch: bool  # the epoch's last train hop
    publishes: bool = True  # whether another session may need the new state
    state_out: str | None = None  # in hex; known when the step is a replay


@dataclass(frozen=True, slots=True, kw_only=True)
class HopSpec:
    """A hop, the state it starts from, and the hops to replay where that state is lost."""

    candidate: CandidateSpec
    step: HopStep
    state_in: str | None  # in hex; None: the initial state
    environment: str | None  # that the hops before ran in; None: any will do
    base: str | None  # in hex; the state that travels along; None: held already, or initial
    replays: tuple[HopStep, ...] = ()

    def to_json(self) -> str:
        """Return the spec as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> HopSpec:
        """Return the spec that `to_json` wrote."""
        raw = json.loads(text)
        candidate = raw["candidate"]
        candidate["input_shape"] = tuple(candidate["input_shape"])
        return cls(
            candidate=CandidateSpec(**candidate),
            step=HopStep(**raw["step"]),
            state_in=raw["state_in"],
            environment=raw["environment"],
            base=raw["base"],
            replays=tuple(HopStep(**step) for step in raw["replays"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HopResult:
    """What a worker measured; becomes the hop's row."""

    rows: int
    steps: int
    loss: float
    metrics: dict[str, float]
    state_in: str
    state_out: str
    state_bytes: int  # of the encoded new state; 0 after a validation
    load_s: float
    compute_s: float
    encode_s: float
    device: str
    environment: str
