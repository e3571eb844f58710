"""A candidate that is cloned while it trains on, and drops the checkpoint that is being copied."""

from __future__ import annotations

from typing import Any

import pytest

import mmdb
from mmdb.db.queries import Query
from mmdb.errors import WriteConflict
from mmdb.train.drive.candidate_creation import clone_candidate
from tests.points import NOW, fill


@pytest.mark.parametrize("when", ["copy_checkpoint_chunks", "copy_checkpoint", "never"])
def test_a_clone_has_the_whole_of_a_checkpoint_or_is_none(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    with mmdb.connect(postgres_url) as db, mmdb.connect(postgres_url) as other:
        fill(db)
        run = db.create_run("r", dataset="d", architecture="linear", search=NOW)
        run.train(workers=1)
        parent = run.leaderboard()[0]["candidate_id"]
        copy = db.connection.run

        def trains_on(query: Query, /, **parameters: Any) -> None:
            if query.name == when:
                with other.connection.transaction():
                    for table in ("checkpoint_chunk", "checkpoint"):
                        other.sql(f"DELETE FROM mmdb.{table} WHERE candidate_id = {parent}")
            copy(query, **parameters)

        monkeypatch.setattr(db.connection, "run", trains_on)
        if when == "never":
            made, _ = clone_candidate(db.connection, parent, {"lr": 0.02})
        else:
            with pytest.raises(WriteConflict, match="has just dropped"):
                clone_candidate(db.connection, parent, {"lr": 0.02})
        monkeypatch.undo()
        assert len(db.sql("SELECT 1 FROM mmdb.candidate")) == (4 if when == "never" else 3)
        (left,) = db.sql(
            "SELECT count(*) AS chunks FROM mmdb.checkpoint_chunk AS k WHERE NOT EXISTS ("
            "SELECT 1 FROM mmdb.checkpoint AS c WHERE c.candidate_id = k.candidate_id)"
        )
        assert left["chunks"] == 0
        if when == "never":
            (row,) = db.sql(
                f"SELECT count(*) AS chunks FROM mmdb.checkpoint_chunk WHERE candidate_id = {made}"
            )
            assert row["chunks"] > 0
