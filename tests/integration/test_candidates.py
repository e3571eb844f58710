"""A candidate with everything that it may have, from the table to the model, on both engines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import mmdb
from mmdb.api import Database
from mmdb.errors import FactoryFailed, InvalidHyperparameter, InvalidOption, MmdbError, RunFailed
from mmdb.store import states
from mmdb.train.compute.live import weights
from tests.integration import candidate_code

CODE = candidate_code.__name__
ROWS = 160
OPTIONS = {
    "labels": ["price", "tags"],
    "inputs": {"image": ["pixels"], "meta": ["age", "income"], "text": ["review"]},
    "shapes": {"image": [1, 4, 4]},
    "tokenize": {"review": {"function": "words", "length": 6, "vocabulary": 50}},
}
SPACE = {
    "lr": 0.01,
    "batch_size": 16,
    "accumulate": 2,
    "clip_norm": 1.0,
    "optimizer": [{"name": "sgd", "momentum": 0.9}, "adam"],
    "loss": {"price": {"name": "cubes", "power": 2}},
    "loss_weights": {"tags": 0.5},
    "class_weights": {"kind": "balanced", "tags": "balanced"},
    "augment": {"name": "noise", "std": 0.05},
    "amp": "bfloat16",
    "schedule": [[{"name": "linear", "total_iters": 1, "until": 1}, {"name": "constant"}]],
    "architecture.width": 8,
}
METRICS = {
    "metric": "price.r2",
    "metrics": ["tags.auc", {"name": "gain", "target": "kind", "maximize": True}],
}


def fill(db: Database) -> None:
    """Create a table of goods, a dataset of it, and register what the owner would."""
    source = np.random.default_rng(0)
    words = ("good", "bad", "ugly", "fine", "nice")
    db.sql(
        "CREATE TABLE goods (pixels real[], age real, income real, review text, kind text, "
        "price real, tags real[])"
    )
    rows = []
    for _ in range(ROWS):
        x = source.normal(size=16).astype(np.float32)
        review = " ".join(words[k] for k in source.integers(0, 5, size=4))
        pixels = ", ".join(repr(float(v)) for v in x)
        rows.append(
            f"(ARRAY[{pixels}], {x[4]}, {x[5]}, '{review}', '{'cat' if x[0] > 0 else 'dog'}', "
            f"{x[1]}, ARRAY[{int(x[2] > 0)}, {int(x[3] > 0)}])"
        )
    db.sql(f"INSERT INTO goods VALUES {', '.join(rows)}")
    for name, kind in (("cubes", "loss"), ("gain", "metric"), ("noise", "augmentation")):
        db.register_function(name, f"{CODE}:{name}", kind)
    db.register_factory("shop", f"{CODE}:shop")
    db.register_factory("broken", f"{CODE}:broken")
    db.create_dataset(
        "goods", "SELECT * FROM goods", label="kind", partitions=2, seed=3, options=OPTIONS
    )


def train(db: Database, name: str, workers: int) -> list[dict[str, Any]]:
    """Train two candidates; return the leaderboard."""
    run = db.create_run(
        name,
        dataset="goods",
        architecture="shop",
        search={"space": SPACE},
        epochs=2,
        seed=1,
        options=METRICS,
    )
    run.train(workers=workers)
    return run.leaderboard()


def final_states(db: Database, name: str) -> dict[int, bytes]:
    """Return the hash of each candidate's last state by ordinal."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, h.state_out FROM mmdb.hop h "
        "JOIN mmdb.candidate c ON c.candidate_id = h.candidate_id "
        f"JOIN mmdb.run r ON r.run_id = c.run_id WHERE r.name = '{name}' ORDER BY h.ordinal"
    )
    return {row["candidate"]: bytes(row["state_out"]) for row in rows}


def test_everything_at_once_gives_the_same_bits_on_both_engines_and_a_model(
    duckdb_url: str, postgres_url: str
) -> None:
    found = {}
    for url, workers in ((duckdb_url, 2), (postgres_url, 1)):
        with mmdb.connect(url) as db:
            fill(db)
            board = train(db, "search", workers)
            found[url] = final_states(db, "search")
            objectives = [row["objective"] for row in board]
            assert objectives == sorted(objectives, reverse=True)
            _assert_metrics(db, objectives[0])
            _assert_recovered(db, board[0]["candidate_id"])
    assert found[duckdb_url] == found[postgres_url]
    assert len(set(found[duckdb_url].values())) == 2


def test_a_model_whose_code_the_server_alone_has_is_saved(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
        monkeypatch.setitem(sys.modules, CODE, None)  # importing it raises here from now on
        board = train(db, "search", workers=1)
        assert [row["name"] for row in db.sql("SELECT name FROM mmdb.model")] == ["search"]
        assert db.save_candidate(board[1]["candidate_id"], "second") == "second@1"
        with pytest.raises(FactoryFailed, match="cannot import"):
            db.recover("search@1")


def _assert_metrics(db: Database, best: float) -> None:
    rows = db.sql("SELECT metrics, objective FROM mmdb.hop WHERE objective IS NOT NULL")
    assert len(rows) == 4
    for row in rows:
        metrics = row["metrics"]
        metrics = json.loads(metrics) if isinstance(metrics, str) else metrics
        assert metrics["price.r2"] == row["objective"]
        assert {"kind.accuracy", "tags.f1_macro", "tags.auc", "kind.gain"} <= set(metrics)
    assert best == max(row["objective"] for row in rows)


def _assert_recovered(db: Database, candidate_id: int) -> None:
    module = db.recover("search@1")
    assert isinstance(module, candidate_code.Shop)
    stored = [
        states.read_checkpoint(
            db.connection, c["part_id"], candidate_id, bytes(c["state_hash"]).hex()
        )
        for c in states.checkpoints(db.connection, candidate_id)
    ]
    kept = [weights(state) for state in stored if state is not None]
    mine = module.state_dict()
    assert any(all(torch.equal(one[path], mine[path]) for path in mine) for one in kept)


@pytest.fixture(scope="module")
def goods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Return a database with the table of goods and its dataset."""
    with mmdb.connect(f"duckdb:///{tmp_path_factory.mktemp('goods') / 'mmdb.duckdb'}") as db:
        fill(db)
        yield db


@pytest.mark.parametrize(
    ("space", "options", "kind", "named"),
    [
        ({"loss": {"price": "focal"}}, {}, InvalidHyperparameter, "focal"),
        ({"class_weights": "balanced"}, {}, InvalidHyperparameter, "class_weights"),
        ({"augment": "spin"}, {}, InvalidHyperparameter, "spin"),
        ({}, {"metric": "accuracy"}, InvalidOption, "accuracy"),
        ({}, {"metric": {"name": "gain", "target": "kind"}}, InvalidOption, "gain"),
        ({}, {"metrics": ["size.mae"]}, InvalidOption, "size"),
    ],
)
def test_what_cannot_train_leaves_no_run(
    goods: Database,
    space: dict[str, Any],
    options: dict[str, Any],
    kind: type[MmdbError],
    named: str,
) -> None:
    with pytest.raises(kind, match=named):
        goods.create_run(
            "bad", dataset="goods", architecture="shop", search={"space": space}, options=options
        )
    assert goods.sql("SELECT run_id FROM mmdb.run WHERE name = 'bad'") == []


def test_the_traceback_of_a_model_that_raises_is_kept(goods: Database) -> None:
    run = goods.create_run("broken", dataset="goods", architecture="broken")
    with pytest.raises(RunFailed):
        run.train(workers=1)
    (row,) = goods.sql("SELECT * FROM mmdb.candidate_event WHERE event = 'failed'")
    assert "ValueError: too many rows" in row["message"]
    assert "in forward" in row["trace"] and "candidate_code.py" in row["trace"]
