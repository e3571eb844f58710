"""Clones of candidates that freeze layers: what trains is what their parents' states are of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import mmdb
from mmdb.api import Database
from mmdb.errors import InvalidHyperparameter, InvalidOption
from mmdb.train.drive import driver
from mmdb.train.schedule import Done

NETWORK = "mlp(hidden=[24, 16])"
#: The first candidate freezes nothing, the second one a layer.
SPACE = {
    "freeze_up_to": [None, "1"],
    "head": {"values": ["linear"], "when": {"freeze_up_to": "1"}},
    "lr": 0.05,
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Yield a database with a trained run of two candidates."""
    folder = tmp_path_factory.mktemp("clones")
    url = f"duckdb:///{folder}/mmdb.duckdb"
    with mmdb.connect(url) as database:
        database.sql(
            "CREATE TABLE points AS SELECT ((i * 7) % 13 - 6)::real / 6 AS a, "
            "((i * 5) % 11 - 5)::real / 5 AS b, (i % 3)::integer AS y "
            "FROM generate_series(1, 90) AS g (i)"
        )
        query = "SELECT a, b, y FROM points"
        options = {"transforms": {"*": "passthrough"}}
        database.create_dataset("d", query, partitions=2, validation=0.2, seed=1, options=options)
        create(database, "r", search={"space": SPACE}).train(workers=1)
        yield database


def create(db: Database, name: str, **asked: Any) -> Any:
    return db.create_run(name, dataset="d", architecture=NETWORK, seed=2, **asked)


@pytest.mark.parametrize(
    ("parent", "changes", "named"),
    [
        (1, {"freeze_up_to": "1", "head": "linear"}, "freeze_up_to"),
        (1, {"head": "linear"}, "head"),
        (2, {"freeze_up_to": "3"}, "freeze_up_to"),
        (2, {"freeze_up_to": None, "head": None}, "freeze_up_to"),
        (2, {"head": {"name": "mlp", "hidden": [4]}}, "head"),
        (2, {"head": None}, "head"),
        (2, {"pool": "flatten"}, "pool"),
        (2, {"batch_norm": "train", "lr": 0.1}, "batch_norm"),
        (2, {"head": None, "adapter": "lora"}, "head"),
    ],
    ids=str,
)
def test_a_clone_trains_the_same_layers(
    db: Database, parent: int, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidHyperparameter, match=f"A clone cannot change '{named}'") as caught:
        db.clone_candidate(parent, changes)
    assert "parent's state" in caught.value.hint
    assert len(db.sql("SELECT 1 FROM mmdb.candidate WHERE run_id = 1 AND parent_id = 1")) == 0


def test_a_clone_may_say_again_what_its_parent_freezes(db: Database) -> None:
    same = {"freeze_up_to": "1", "head": {"name": "linear"}, "pool": "auto", "adapter": None}
    clones = [db.clone_candidate(2, {"lr": 0.01} | same), db.clone_candidate(1, {"head": None})]
    assert db.run("r").train(workers=1).failed == 0
    hops = "SELECT 1 FROM mmdb.hop WHERE candidate_id = "
    assert all(db.sql(f"{hops}{clone}") for clone in clones)


def test_a_clone_is_checked_as_a_run_is(db: Database) -> None:
    db.sql("UPDATE mmdb.run SET warm_start = 'auto' WHERE run_id = 1")
    with pytest.raises(InvalidOption, match="warm_start 'auto'") as caught:
        db.clone_candidate(2, {"lr": 0.01})
    db.sql("UPDATE mmdb.run SET warm_start = 'off' WHERE run_id = 1")
    assert caught.value.hint


def test_a_population_keeps_what_it_freezes(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    # Who is cloned follows from who goes first, and that from the seconds that hops take: by these
    # the members take turns.
    hops = count(1)
    monkeypatch.setattr(driver, "Done", lambda worker, _: Done(worker, 1.0 / next(hops)))
    space = {
        "freeze_up_to": ["1", "3"],
        "head": ["linear", {"name": "mlp", "hidden": [4]}],
        "lr": {"low": 1e-4, "high": 1, "log": True},
    }
    search = {"method": "pbt", "population": 4, "fraction": 0.5, "space": space}
    assert create(db, "pbt", search=search, epochs=4).train(workers=1).failed == 0
    rows = db.sql(
        "SELECT c.config, p.config AS parent FROM mmdb.candidate AS c "
        "JOIN mmdb.candidate AS p ON p.candidate_id = c.parent_id "
        "JOIN mmdb.run AS r ON r.run_id = c.run_id WHERE r.name = 'pbt'"
    )
    assert len(rows) == 2
    for row in rows:
        found, parent = (_parsed(row[name]) for name in ("config", "parent"))
        assert all(found[key] == parent[key] for key in ("freeze_up_to", "head"))


def _parsed(config: Any) -> dict[str, Any]:
    return json.loads(config) if isinstance(config, str) else dict(config)
