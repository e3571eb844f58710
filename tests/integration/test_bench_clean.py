"""What a bench makes is gone when it ends; what it measured is not, even if cleaning up fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.bench import command
from mmdb.bench.figures import Figure
from mmdb.bench.workload import BenchShare, bench_names, clean
from mmdb.store.models.save import save_model
from tests.filled import fill, tables_of
from tests.stores import NOTHING, counts, rows_of

#: Tables whose rows belong to no name of a bench; the filled tensor is its own base, and stays.
OTHERS = {
    *("alias_event", "environment", "factory", "function", "migration", "profile", "role_limit"),
    *("schedule", "schedule_run", "scoring", "scoring_failure", "server", "setting", "share"),
    *("state_chunk",),
    *("trainer", "encoding", "tensor", "tensor_chunk"),
}


def test_models_that_came_from_elsewhere_are_cleaned_up(database_url: str, tmp_path: Path) -> None:
    edge_url = f"duckdb:///{tmp_path / 'edge.duckdb'}"
    with mmdb.connect(database_url) as db:
        with bench_names(db) as prefix:
            name = f"{prefix}-net"
            with mmdb.connect(edge_url) as edge:
                save_model(edge.connection, name, {"a": torch.randn(100, 100)})
            db.pull(name, from_=edge_url)
            db.note(name, "a note")
            db.tag(name, stage="trial")
            assert db.sql("SELECT kind FROM mmdb.model_origin")
            db.save(f"{prefix}-module", torch.nn.Linear(2, 2))
            assert rows_of(db, "architecture_prefix")
        assert counts(db) == NOTHING
        assert rows_of(db, "architecture_prefix") == 0


def test_nothing_that_belongs_to_a_name_of_the_bench_stays(database_url: str) -> None:
    with mmdb.connect(database_url) as db:
        fill(db, "bench_1_one")
        clean(db, "bench_1")
        left = {table.name for table in tables_of(db) if rows_of(db, table.name)}
    assert left <= OTHERS


def test_a_row_that_others_refer_to_is_no_conflict(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        save_model(db.connection, "net", {"a": torch.ones(2)})
        db.note("net", "a note")
        with pytest.raises(errors.DatabaseFailed, match="violates foreign key") as caught:
            db.sql("DELETE FROM mmdb.model")
        assert not isinstance(caught.value, errors.WriteConflict)
        assert "mmdb.model_note refer to it" in caught.value.hint
        with pytest.raises(errors.WriteConflict):  # what it refers to has just gone
            db.sql("INSERT INTO mmdb.model_note (model_id, note) VALUES (99, 'late')")


def test_a_report_is_written_before_anything_is_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"

    def bench(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
        yield Figure(name="seconds of a save", value=1.5, unit="s")
        assert json.loads(file.read_text())["figures"][0]["value"] == 1.5
        raise errors.DatabaseFailed("The rows are still referred to.")

    monkeypatch.setitem(command.BENCHES, "store", bench)
    with pytest.raises(errors.DatabaseFailed, match="still referred to"):
        command.run_bench("store", [f"duckdb:///{tmp_path / 'zoo.duckdb'}"], str(file))
    assert [f["name"] for f in json.loads(file.read_text())["figures"]] == ["seconds of a save"]
    assert "seconds of a save" in capsys.readouterr().out
