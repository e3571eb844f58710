"""A candidate's training as a chain of stages, each from one state to the next. Pure.

A stage is one hop, one round of a group of workers (`data_parallel`), or all train hops of an epoch
and their mean (`model_average`). A state that is
lost is made again by repeating the stages since one that is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal

from mmdb.db.connection import Row
from mmdb.train.spec import HopStep, Stage


def stages(
    hops: Sequence[Row], merges: Sequence[Row], keys: Mapping[int, str], strategy: str
) -> list[Stage]:
    """Return the stages that a candidate has completed, in order.

    Args:
        hops: its train hops in order: part_id, epoch, ordinal, seed, row_count, state_out and
            group_size.
        merges: epoch and state_out of its merged epochs.
        keys: content hash in hex of each partition, by part_id.
    """
    if strategy == "model_average":
        return _averaged(hops, merges, keys)
    return _chained(hops, keys)


def _averaged(hops: Sequence[Row], merges: Sequence[Row], keys: Mapping[int, str]) -> list[Stage]:
    by_epoch: dict[int, list[Row]] = defaultdict(list)
    for hop in hops:
        by_epoch[hop["epoch"]].append(hop)
    return [
        Stage(
            kind="average",
            steps=tuple(_step(hop, keys, True) for hop in by_epoch[merge["epoch"]]),
            state_out=_out(merge),
        )
        for merge in sorted(merges, key=lambda merge: int(merge["epoch"]))
    ]


def _chained(hops: Sequence[Row], keys: Mapping[int, str]) -> list[Stage]:
    """Return a stage for each hop alone and for each round of a group.

    All hops of a round leave the same state, which no other round does.
    """
    found = []
    visited = 0
    for _, members in groupby(hops, key=_stage_of):
        rows = list(members)
        visited += len(rows)
        ends = visited % len(keys) == 0
        steps = tuple(_step(hop, keys, ends) for hop in rows)
        kind: Literal["hop", "group"] = "group" if rows[0]["group_size"] else "hop"
        found.append(Stage(kind=kind, steps=steps, state_out=_out(rows[0])))
    return found


def _stage_of(hop: Row) -> tuple[int, bytes | int]:
    alone = hop["group_size"] is None
    return hop["epoch"], hop["ordinal"] if alone else bytes(hop["state_out"])


def repeated(hop: Row, part: Row) -> HopStep:
    """Return a hop of an averaged epoch, to be done again."""
    return _step(hop, {part["part_id"]: bytes(part["content_hash"]).hex()}, True)


def _step(hop: Row, keys: Mapping[int, str], ends_epoch: bool) -> HopStep:
    return HopStep(
        part_id=hop["part_id"],
        partition=keys[hop["part_id"]],
        epoch=hop["epoch"],
        ordinal=hop["ordinal"],
        seed=hop["seed"],
        validates=False,
        ends_epoch=ends_epoch,
        state_out=_out(hop),
        rows=hop["row_count"],
    )


def _out(row: Row) -> str:
    return bytes(row["state_out"]).hex()
