"""Runs of the strategy `sisa`, each of which is a run for every shard of its dataset."""

from __future__ import annotations

import json

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load

SISA = "sisa"

_Q = load("runs")


def shard_name(run: str, shard: int) -> str:
    """Return the name of a shard's run.

    >>> shard_name("buyers", 0)
    'buyers/shard-1'
    """
    return f"{run}/shard-{shard + 1}"


def shard_runs(run: Row) -> list[str]:
    """Return the names of the runs that a run is made of, one for each shard; of others none.

    Args:
        run: a row with name, asked_strategy and options.
    """
    if run["asked_strategy"] != SISA:
        return []
    return [shard_name(run["name"], shard) for shard in range(json.loads(run["options"])["shards"])]


def shards_of(connection: Connection, name: str) -> list[str]:
    """Return the names of the runs that the run of some name is made of, as `shard_runs` does."""
    return [shard for run in connection.rows(_Q.find_run, name=name) for shard in shard_runs(run)]


def whole_of(connection: Connection, name: str) -> Row | None:
    """Return the run that a run is a shard of: a row of `find_run`; None where it is none."""
    for run in connection.rows(_Q.find_run, name=name.rpartition("/shard-")[0]):
        if name in shard_runs(run):
            return run
    return None
