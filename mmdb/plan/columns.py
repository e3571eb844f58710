"""A load as columns: an entry for each candidate, so that a formula is computed for all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mmdb.plan.cost import CandidateCost, Cluster, Layer, Load
from mmdb.plan.equations import hop
from mmdb.plan.equations.hop import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Costs of M candidates on P partitions, on a cluster; seconds of a worker that is alone.

    (M,) where nothing else is said; times are of one hop unless they say epoch.
    """

    rows: npt.NDArray[np.int64]  # (P,)
    epochs: int
    validates: bool
    step_s: Floats
    row_s: Floats
    batch_size: Floats
    train: Floats  # (M, U) of a partition of each size
    size_of: npt.NDArray[np.int64]  # (P,) index of its size
    train_epoch_s: Floats
    validate_s: Floats  # of a validation hop, its overhead included; 0 where nothing is validated
    begin_s: Floats  # of making the initial state
    take_s: Floats  # of taking up a state that another worker left
    leave_s: Floats  # at the end of each train hop
    publish_s: Floats  # of leaving a state for other workers
    durable_s: Floats  # of writing a state at an epoch's end, for good and for other workers
    merge_s: Floats
    read_s: Floats  # (P,) of reading a partition, once a node
    read_validation_s: float
    hop_s: Floats  # of a hop, the gap before the next one included
    gap_s: float
    state_bytes: Floats
    gradient_bytes: Floats
    memory_bytes: Floats  # with its batch
    layers: tuple[tuple[Layer, ...], ...]
    exchanges: Mapping[int, Floats]  # measured, of a step by number of workers; NaN where not
    deviation: float  # of a hop
    uncertainty: float  # of the costs

    @property
    def candidates(self) -> int:
        """M."""
        return len(self.step_s)

    @property
    def partitions(self) -> int:
        """P."""
        return len(self.rows)

    @property
    def visits(self) -> int:
        """Hops of a candidate in an epoch; a merge is none."""
        return self.partitions + self.validates

    def hops(self) -> Floats:
        """Return the seconds of every train hop, (M, P)."""
        return np.asarray(self.train[:, self.size_of])

    def by_partition(self) -> Floats:
        """Return the seconds of all candidates' train hops on each partition, (P,)."""
        return np.asarray(self.train.sum(axis=0)[self.size_of])


def columns(load: Load, cluster: Cluster, batch_size: int | None = None) -> Columns:
    """Return a load's columns.

    Args:
        batch_size: of all candidates, instead of their own.
    """
    some = load.candidates

    def of(name: str) -> Floats:
        return np.array([getattr(c, name) for c in some], dtype=np.float64)

    batch = np.full(len(some), float(batch_size)) if batch_size else of("batch_size")
    rows = np.array(load.rows, dtype=np.int64)
    sizes, size_of, counts = np.unique(rows, return_inverse=True, return_counts=True)
    step_s, row_s, state = of("step_s"), of("row_s"), of("state_bytes")
    hop_s = of("hop_s") + cluster.gap_s
    train = hop.train_s(sizes[None, :], batch[:, None], step_s[:, None], row_s[:, None])
    validation_s = load.validation_rows * of("validation_row_s")
    publish_s = state * cluster.publish_byte_s
    durable_s = of("durable_s") + publish_s + state * cluster.checkpoint_byte_s
    read_row_s = float(of("read_row_s").mean())
    encode, load_byte_s = cluster.encode_byte_s, cluster.load_byte_s
    weight = train @ counts
    return Columns(
        rows=rows,
        epochs=load.epochs,
        validates=bool(load.validation_rows),
        step_s=step_s,
        row_s=row_s,
        batch_size=batch,
        train=train,
        size_of=size_of.astype(np.int64),
        train_epoch_s=weight,
        validate_s=validation_s + hop_s if load.validation_rows else np.zeros(len(some)),
        begin_s=of("build_s") + state * encode,
        take_s=hop.take_s(state, of("build_s"), load_byte_s),
        leave_s=hop.leave_s(state, hop_s, encode),
        publish_s=publish_s,
        durable_s=durable_s,
        merge_s=hop.merge_s(len(rows), state, hop_s, load_byte_s, cluster.merge_byte_s) + durable_s,
        read_s=np.asarray(rows * read_row_s, dtype=np.float64),
        read_validation_s=load.validation_rows * read_row_s,
        hop_s=hop_s,
        gap_s=cluster.gap_s,
        state_bytes=state,
        gradient_bytes=of("gradient_bytes"),
        memory_bytes=of("memory_bytes") + batch * of("memory_row_bytes"),
        layers=tuple(c.layers for c in some),
        exchanges=_exchanges(some),
        deviation=_mean(of("deviation"), weight),
        uncertainty=_mean(of("uncertainty"), weight),
    )


def _exchanges(candidates: Sequence[CandidateCost]) -> dict[int, Floats]:
    found: dict[int, Floats] = {}
    for place, one in enumerate(candidates):
        for members, seconds in one.exchanges:
            found.setdefault(members, np.full(len(candidates), np.nan))[place] = seconds
    return found


def _mean(values: Floats, weights: Floats) -> float:
    total = float(weights.sum())
    return float(values @ weights) / total if total else float(values.mean())


def repartitioned(load: Load, partitions: int) -> Load:
    """Return a load with its rows dealt out evenly among so many partitions."""
    if partitions == len(load.rows):
        return load
    total = sum(load.rows)
    cuts = [k * total // partitions for k in range(partitions + 1)]
    rows = tuple(high - low for low, high in pairwise(cuts))
    return replace(load, rows=rows, placement={})


def in_turn(partitions: int, nodes: Sequence[str]) -> dict[int, frozenset[str]]:
    """Return the placement of partitions on nodes in turn, each on one."""
    return {p: frozenset({nodes[p % len(nodes)]}) for p in range(partitions)}
