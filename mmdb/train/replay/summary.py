"""What a run came to: its model, which is its best candidate, or a mean of several."""

from __future__ import annotations

from dataclasses import dataclass

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import RunFailed
from mmdb.train.ledger.shards import shard_runs, whole_of
from mmdb.train.replay.mean_saving import save_better_mean, save_mean_of
from mmdb.train.replay.saving import save_on_either_side


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run came to."""

    run: str
    candidates: int
    failed: int
    hops: int  # done by this call, validations included
    seconds: float
    best_candidate_id: int
    model: str
    version: int
    members: tuple[int, ...] = ()  # candidates whose mean the model is; none: it is the best one's

    @property
    def mean_text(self) -> str | None:
        """Say that the model is a mean; None where it is not."""
        if not self.members:
            return None
        return (
            f"Run {self.run!r}: model {self.model}@{self.version} is the mean of candidates "
            f"{', '.join(map(str, self.members))}, which is better on the rows held out than the "
            "best one alone."
        )


def summarise(connection: Connection, name: str, hops: int, seconds: float) -> Summary:
    """Save the head of the leaderboard under the run's name, once, and sum the run up.

    Where the run's option `ensemble` says so, it may be the mean of several candidates.

    Args:
        hops, seconds: of the driver's call.
    Raises:
        RunFailed: every candidate has failed.
        FactoryFailed: the best one's code can be imported neither here nor in the server.
    """
    for whole in connection.rows(load("runs").find_run, name=name):
        if shard_runs(whole):
            return _of_shards(connection, whole, hops, seconds)
    best = connection.rows(load("runs").best_candidate, name=name)
    if not best:
        raise RunFailed(f"Every candidate of run {name!r} has failed.")
    candidate_id = best[0]["candidate_id"]
    model = save_better_mean(connection, name, candidate_id)
    model = model or save_on_either_side(connection, candidate_id, name)
    if (run := whole_of(connection, name)) is not None:
        _save_whole(connection, run)
    (counted,) = connection.rows(load("runs").count_candidates, name=name)
    return Summary(
        run=name,
        candidates=counted["candidates"],
        failed=counted["failed"],
        hops=hops,
        seconds=seconds,
        best_candidate_id=candidate_id,
        model=model["name"],
        version=model["version"],
        members=model.get("members", ()),
    )


def _save_whole(connection: Connection, whole: Row) -> Row | None:
    """Save the mean of the models of a run's shards, once all of them are there.

    Whoever ends the last shard does so, and notes that the run is finished.
    """
    queries, shards = load("runs"), shard_runs(whole)
    best = [row for shard in shards for row in connection.rows(queries.find_trained, name=shard)]
    if len(best) < len(shards):
        return None
    candidates = [row["candidate_id"] for row in best]
    with connection.transaction():
        saved = save_mean_of(connection, whole["name"], candidates, whole["dataset_id"])
        connection.run(queries.note_finished, run_id=whole["run_id"])
    return saved


def _of_shards(connection: Connection, whole: Row, hops: int, seconds: float) -> Summary:
    """Sum up a run that is made of others, one for each shard."""
    saved = _save_whole(connection, whole)
    shards = shard_runs(whole)
    if saved is None:
        raise RunFailed(
            f"Not every shard of run {whole['name']!r} is trained.",
            hint="Train it again, or those of its shards that have no model.",
        )
    counts = [connection.rows(load("runs").count_candidates, name=shard)[0] for shard in shards]
    return Summary(
        run=whole["name"],
        candidates=sum(row["candidates"] for row in counts),
        failed=sum(row["failed"] for row in counts),
        hops=hops,
        seconds=seconds,
        best_candidate_id=saved["members"][0],
        model=saved["name"],
        version=saved["version"],
    )
