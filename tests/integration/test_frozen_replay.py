"""Models with frozen layers that are kept as recipes: their hops give the same bits again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import mmdb
from mmdb.api import Database
from mmdb.errors import BackboneMissing, ModelInUse
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import initial_module
from mmdb.store import stored_features
from mmdb.store.models.model_rows import find_model
from mmdb.train.replay.recipe_replay import recover_module
from mmdb.train.replay.saving import save_candidate

NETWORK = "mlp(hidden=[24, 16])"
SPACE = {"freeze_up_to": ["1"], "head": ["linear", None], "lr": 0.05}


@pytest.fixture
def db(tmp_path: Path) -> Database:
    database = mmdb.connect(f"duckdb:///{tmp_path}/mmdb.duckdb")
    database.sql(
        "CREATE TABLE points AS SELECT ((i * 7) % 13 - 6)::real / 6 AS a, "
        "((i * 5) % 11 - 5)::real / 5 AS b, (i % 3)::integer AS y FROM generate_series(1, 90) g (i)"
    )
    database.create_dataset("d", "SELECT a, b, y FROM points", partitions=2, seed=1)
    return database


def weights(db: Database, model: str) -> dict[str, torch.Tensor]:
    return recover_module(db.connection, find_model(db.connection, model)).state_dict()


def test_a_replay_gives_the_saved_weights_with_and_without_stored_features(db: Database) -> None:
    with db:
        run = db.create_run(
            "r",
            dataset="d",
            architecture=NETWORK,
            seed=2,
            epochs=2,
            search={"space": SPACE},
            options={"features": {"choice": "stored", "storage": "float16"}},
        )
        assert run.train(workers=1).failed == 0
        ids = [row["candidate_id"] for row in db.sql("SELECT candidate_id FROM mmdb.candidate")]
        kept = [row["feature_id"] for row in db.sql("SELECT feature_id FROM mmdb.feature")]
        for place, candidate_id in enumerate(ids):
            for approach in ("snapshot", "provenance"):
                save_candidate(db.connection, candidate_id, f"{approach}{place}", approach=approach)
        for is_stored in (True, False):
            assert any(stored_features.find_parts(db.connection, kept).values()) is is_stored
            for place, _ in enumerate(ids):
                saved, made = (weights(db, f"{a}{place}") for a in ("snapshot", "provenance"))
                assert saved.keys() == made.keys()
                assert all(torch.equal(saved[path], made[path]) for path in saved)
            stored_features.evict(db.connection, kept)


def test_a_recipe_keeps_the_model_whose_layers_it_needs(db: Database) -> None:
    with db:
        db.save("base", initial_module(NETWORK, {}, (2,), 3, SHIPPED, seed=7))
        space = {"freeze_up_to": "1", "lr": 0.05, "batch_norm": ["frozen", "train"]}
        run = db.create_run(
            "r",
            dataset="d",
            architecture=NETWORK,
            search={"space": space},
            warm_start="base",
            options={"features": {"choice": "stored"}},  # the second candidate cannot use them
        )
        assert run.train(workers=1).failed == 0
        ids = [row["candidate_id"] for row in db.sql("SELECT candidate_id FROM mmdb.candidate")]
        for place, candidate_id in enumerate(ids):
            for approach in ("snapshot", "provenance"):
                save_candidate(db.connection, candidate_id, f"{approach}{place}", approach=approach)
        db.sql("DELETE FROM mmdb.checkpoint_chunk")
        db.sql("DELETE FROM mmdb.checkpoint")
        for place, _ in enumerate(ids):
            with pytest.raises(ModelInUse, match=f"'provenance{place}@1' needs layers") as caught:
                db.drop_model("base")
            assert caught.value.hint
            saved, made = (weights(db, f"{a}{place}") for a in ("snapshot", "provenance"))
            assert all(torch.equal(saved[path], made[path]) for path in saved)
            db.drop_model(f"provenance{place}")
        db.drop_model("base")


def test_no_recipe_begins_with_layers_that_were_dropped(db: Database) -> None:
    with db:
        db.save("base", initial_module(NETWORK, {}, (2,), 3, SHIPPED, seed=7))
        search = {"space": {"freeze_up_to": "1"}}
        run = db.create_run(
            "r", dataset="d", architecture=NETWORK, search=search, warm_start="base"
        )
        assert run.train(workers=1).failed == 0
        db.drop_model("base")
        with pytest.raises(BackboneMissing, match="no recipe") as caught:
            save_candidate(db.connection, 1, "made", approach="provenance")
        assert caught.value.hint
        assert not db.sql("SELECT 1 FROM mmdb.model WHERE name = 'made'")
        save_candidate(db.connection, 1, "made")  # its weights are there, and need nothing
