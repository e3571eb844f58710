"""The runs that Citus is measured by, and what their hops say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mmdb.api import Database
from mmdb.db.connection import Row
from tests.bench.points import load_points
from tests.bench.train.convergence import labelled_rows

DATASET = "points"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A run: how long its hops are, and how large its states."""

    rows: int
    width: int
    hidden: tuple[int, ...]
    rates: tuple[float, ...]  # of which each is a candidate
    partitions: int
    epochs: int
    validation: float = 0.2


def make_dataset(db: Database, work: Work) -> None:
    """Create the table and the dataset, the same on every server."""
    load_points(db, DATASET, *labelled_rows(work.rows, work.width))
    query = f"SELECT x, y FROM {DATASET}"
    db.create_dataset(DATASET, query, partitions=work.partitions, validation=work.validation)


def create_run(
    db: Database, name: str, work: Work, order: str = "fixed", strategy: str = "mop"
) -> Any:
    """Create a run that hops; its states have a momentum."""
    space = {"lr": list(work.rates), "optimizer": [{"name": "sgd", "momentum": 0.9}]}
    return db.create_run(
        name,
        dataset=DATASET,
        architecture=f"mlp(hidden={list(work.hidden)})",
        search={"method": "grid", "space": space},
        epochs=work.epochs,
        strategy=strategy,
        options={"order": order} if strategy == "mop" else {},
    )


def hops_of(db: Database, run: str) -> list[Row]:
    """Return a run's hops, each candidate's in their order."""
    return db.sql(
        "SELECT c.ordinal AS candidate, h.epoch, h.ordinal, p.ordinal AS part, h.part_id, h.node, "
        "h.worker, h.loss, h.state_in, h.state_out, h.state_bytes, "
        "h.load_s, h.compute_s, h.store_s, h.total_s, "
        "h.started_at, h.finished_at FROM mmdb.hop h JOIN mmdb.candidate c USING (candidate_id) "
        "JOIN mmdb.run r USING (run_id) JOIN mmdb.partition p USING (part_id) "
        "WHERE r.name = %(run)s ORDER BY c.ordinal, h.epoch, h.ordinal, h.started_at",
        {"run": run},
    )


def bits(hops: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return what hops did and came to, on any server: no ids, places or times."""
    names = ("candidate", "epoch", "ordinal", "part", "loss", "state_in", "state_out")
    return sorted(tuple(hop[name] for name in names) for hop in hops)


def nodes_of(db: Database) -> dict[int, str]:
    """Return where each partition lies, as "host:port"."""
    rows = db.sql(
        "SELECT p.part_id, s.nodename || ':' || s.nodeport AS node FROM mmdb.partition p "
        "JOIN citus_shards s ON s.table_name = 'mmdb.hop'::regclass AND s.shardid = "
        "get_shard_id_for_distribution_column('mmdb.hop', p.part_id)"
    )
    return {row["part_id"]: row["node"] for row in rows}


def changes(hops: Sequence[Row]) -> Iterator[Row]:
    """Yield the hops that needed their state from another node than theirs.

    A validation hop leaves no state: what follows needs the state of the last one that trained.
    """
    last: dict[int, Row] = {}
    for hop in sorted(hops, key=lambda hop: hop["started_at"]):
        before = last.get(hop["candidate"])
        if before is not None and before["node"] != hop["node"]:
            yield {**hop, "state_bytes": before["state_bytes"]}
        if bytes(hop["state_out"]) != bytes(hop["state_in"]):
            last[hop["candidate"]] = hop


def idleness(hops: Sequence[Row]) -> float:
    """Return the makespan in units of the seconds that each worker spent on hops: 1 if none idled.

    Overhead between hops counts, as workers that wait for each other do.
    """
    workers = len({hop["worker"] for hop in hops})
    return makespan(hops) * workers / sum(float(hop["total_s"]) for hop in hops)


def makespan(hops: Sequence[Row]) -> float:
    """Return the seconds from the first hop's start to the last one's end."""
    ends = max(hop["finished_at"] for hop in hops) - min(hop["started_at"] for hop in hops)
    return float(ends.total_seconds())
