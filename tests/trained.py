"""A database with a trained run and its model, and what it answers of them."""

from __future__ import annotations

from typing import Any

from mmdb.api import Database

_TABLE = (
    "CREATE TABLE points AS SELECT i AS id, (i % 7 - 3)::real AS a, (i % 11 - 5)::real AS b,"
    " (i % 2)::integer AS y FROM generate_series(1, 48) AS g (i)"
)
_SEARCH = {"space": {"optimizer": ["adam"], "lr": [0.1, 0.01]}}
_LEADERBOARD = (
    "SELECT rank, candidate_id, accuracy FROM mmdb.leaderboard WHERE run = 'search' ORDER BY rank"
)
_HOPS = (
    "SELECT candidate_id, epoch, part_id, loss, state_out FROM mmdb.hop"
    " WHERE candidate_id <= 2 ORDER BY candidate_id, epoch, part_id"
)


def fill(db: Database) -> None:
    """Make a table, a dataset, a trained run with its model, and a run that is not trained."""
    db.sql(_TABLE)
    db.create_dataset("points", "SELECT a, b, y FROM points", partitions=2, seed=1)
    run = db.create_run(
        "search", dataset="points", architecture="mlp", search=_SEARCH, epochs=2, seed=3
    )
    run.train(workers=1)
    db.create_run("later", dataset="points", architecture="linear", epochs=1, seed=5)


def answers(db: Database) -> list[list[tuple[Any, ...]]]:
    """Return what views and tables say of the trained run, and what its model predicts."""
    rows = [*map(db.sql, (_LEADERBOARD, _HOPS))]
    rows.append(db.predict_query("search", "SELECT id, a, b FROM points WHERE id <= 5"))
    return [[tuple(row.values()) for row in found] for found in rows]
