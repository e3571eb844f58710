"""How runs get their features, what that costs, and which features each candidate trains on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields

from mmdb.db.connection import Connection
from mmdb.db.queries import load

_Q = load("features")


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How a run gets features.

    Attributes:
        choice: stored, memory, recomputed, streamed or whole.
        reason: one sentence.
        candidates: that train on them.
        uses: hops that are to read a partition of them.
        byte_count: that they take where they are kept; 0 where they are not.
        saved_s: seconds that sharing them is to save.
        planned_s: seconds of all workers that it is to take to compute, write and read them.
        layer: path of the cut in the run's network.
        network_hash: names that network with its tensors.
        depth: place of the cut in the order in which that network runs.
        backbone: "name@version" of the model whose layers the run freezes; None: its seed's.
        model_id: that model's number.
    """

    feature_id: int
    choice: str
    reason: str
    candidates: int
    uses: int
    byte_count: int
    saved_s: float
    planned_s: float
    layer: str
    network_hash: bytes
    depth: int
    backbone: str | None
    model_id: int | None


def put_uses(connection: Connection, run_id: int, uses: Iterable[Use]) -> None:
    """Note how a run gets its features, in place of what an earlier start of it noted."""
    connection.run_many(_Q.put_use, [{"run_id": run_id, **asdict(use)} for use in uses])


def find_uses(connection: Connection, run_id: int) -> dict[int, Use]:
    """Return how a run gets its features, by feature."""
    names = [one.name for one in fields(Use)]
    rows = connection.rows(_Q.find_uses, run_id=run_id)
    return {
        row["feature_id"]: Use(
            **({name: row[name] for name in names} | {"network_hash": bytes(row["network_hash"])})
        )
        for row in rows
    }


def add_seconds(
    connection: Connection,
    run_id: int,
    feature_id: int,
    *,
    compute_s: float = 0.0,
    store_s: float = 0.0,
    read_s: float = 0.0,
) -> None:
    """Add to what a run's features have cost."""
    connection.run(
        _Q.add_seconds,
        run_id=run_id,
        feature_id=feature_id,
        compute_s=compute_s,
        store_s=store_s,
        read_s=read_s,
    )


def put_candidates(connection: Connection, run_id: int, features: Mapping[int, int]) -> None:
    """Note the features that candidates train on: candidate_id -> feature_id."""
    rows = [
        {"candidate_id": candidate_id, "run_id": run_id, "feature_id": feature_id}
        for candidate_id, feature_id in features.items()
    ]
    connection.run_many(_Q.put_candidate, rows)


def find_candidates(connection: Connection, run_id: int) -> dict[int, int]:
    """Return the features that a run's candidates train on: candidate_id -> feature_id."""
    rows = connection.rows(_Q.find_candidates, run_id=run_id)
    return {row["candidate_id"]: row["feature_id"] for row in rows}
