"""What profiles said of steps, kept before they run; what hops took beside corrects later plans."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.plan.cost import CandidateCost
from mmdb.plan.equations.makespan import slowdown_at
from mmdb.plan.profile.stamp import Stamp
from mmdb.plan.work.residual import FEATURES, VERSION, Residual, learn

_Q = load("residual")
#: Predictions that a plan keeps, and those of trained candidates that are learned from: the last.
MOST_KEPT, MOST_LEARNED = 100, 400
#: Predictions among which trained ones are looked for: the last.
MOST_PLANNED = 4_000
#: Hops of a candidate that are looked at, and those below which they say nothing: the first are
#: those of a process that has yet to warm up.
HOPS, FEW_HOPS = 9, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a profile says of a candidate's steps."""

    candidate_id: int
    cost: CandidateCost
    features: NDArray[np.float64]
    is_plain: bool  # its steps do nothing that the profile knows nothing of


def keep(
    connection: Connection, stamp: Stamp | None, found: Mapping[str, Sequence[Prediction]]
) -> None:
    """Keep what a profile says of candidates, each once; nothing of one that was assumed.

    Args:
        found: by likeness.
    """
    if stamp is None:
        return
    plain = [one for some in found.values() for one in some if one.is_plain]
    connection.run_many(
        _Q.add_prediction,
        [
            {
                "candidate_id": one.candidate_id,
                "fingerprint": stamp.fingerprint,
                "profiled_at": stamp.measured_at,
                "version": VERSION,
                "batch_size": one.cost.batch_size,
                "step_s": one.cost.step_s,
                "row_s": one.cost.row_s,
                "features": json.dumps(one.features.tolist()),
            }
            for one in plain[:MOST_KEPT]
        ],
    )


def residual_of(
    connection: Connection, stamp: Stamp | None, slowdown: Sequence[float]
) -> Residual | None:
    """Return what hops on this machine teach of its profile; None where they are too few.

    Args:
        stamp: of the profile; None if it was assumed.
        slowdown: of a step at 1, 2, ... busy workers, which a hop's seconds are divided by.
    """
    if stamp is None:
        return None
    rows = connection.rows(
        _Q.find_trained,
        fingerprint=stamp.fingerprint,
        profiled_at=stamp.measured_at,
        version=VERSION,
        node=stamp.machine.node,
        device=stamp.machine.device,
        environment=f"torch {stamp.versions.torch}, {stamp.machine.capability}, %",
        planned=MOST_PLANNED,
        most=MOST_LEARNED,
        hops=HOPS,
        few=FEW_HOPS,
    )
    return learned(rows, slowdown)


def learned(rows: Iterable[Row], slowdown: Sequence[float]) -> Residual | None:
    """Return the residual of hops, as `find_trained` returns them."""
    by_candidate: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_candidate[row["candidate_id"]].append(row)
    features, predicted, measured = [], [], []
    for hops in by_candidate.values():
        point = _point(hops[0]["features"])
        if len(hops) < FEW_HOPS or point is None or not all(map(_predicted, hops)):
            continue
        # A partition's last batch may be smaller than the others.
        relations = [_seconds(hop, slowdown) / _predicted(hop) for hop in hops]
        features.append(point)
        predicted.append(1.0)
        measured.append(median(relations))
    return learn(features, predicted, measured)


def _point(text: str) -> NDArray[np.float64] | None:
    """Return a row's features; None if they are none, as any trainer may add rows."""
    found = json.loads(text)
    is_point = isinstance(found, list) and len(found) == FEATURES
    if not is_point or not all(isinstance(one, int | float) for one in found):
        return None
    return np.array(found, dtype=float)


def _seconds(hop: Row, slowdown: Sequence[float]) -> float:
    slow = slowdown_at(tuple(slowdown), max(1, hop["workers"] or 1))
    return float(hop["compute_s"] / hop["steps"] / slow)


def _predicted(hop: Row) -> float:
    return float(hop["step_s"] + hop["row_s"] * hop["row_count"] / hop["steps"])


def notes(
    residual: Residual | None, found: Mapping[str, Sequence[Prediction]], known: Iterable[str]
) -> list[str]:
    """Return what to say of the candidates that were corrected.

    Args:
        found: by likeness.
        known: likenesses that were measured, and are not corrected.
    """
    measured = set(known)
    cold = [one for like, some in found.items() if like not in measured for one in some]
    if residual is None or not cold:
        return []
    changes = [residual.factor(one.features) - 1 for one in cold]
    low, high = f"{min(changes):+.0%}", f"{max(changes):+.0%}"
    amount = low if low == high else f"{low} to {high}"
    return [
        "Steps of candidates that never ran here are predicted by the profile, and corrected by "
        f"{amount}, as steps of {len(residual.known)} others have shown."
    ]
