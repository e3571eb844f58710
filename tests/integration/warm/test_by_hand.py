"""A warm start by hand: of a candidate in SQL, of a module in Python."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from mmdb import errors
from mmdb.api import Database
from mmdb.graph.factories import mlp
from mmdb.train.values.warm_spec import OPERATORS_VERSION
from mmdb.train.warm import outside
from tests.integration.test_same_bits import CLASSES, WIDTH
from tests.warm_runs import RUNS, WIDE, chain, held_out, hexed, warm

# -- in SQL ----------------------------------------------------------------------------


def test_what_a_candidate_begins_with_can_be_settled_before_it_is_trained(db: Database) -> None:
    run = db.create_run("r", dataset="d", warm_start="parent", **RUNS["deep"])
    (candidate,) = run.leaderboard()
    call = f"SELECT * FROM mmdb.begin_candidate({candidate['candidate_id']})"
    (first,), (again,) = db.sql(call), db.sql(call)
    assert dict(first) == dict(again)
    assert (first["parent"], first["coverage"] > 0.2) == ("parent@1", True)
    (row,) = warm(db, "r")
    assert first["state"] == hexed(row["state_hash"])
    run.train(workers=1)
    assert chain(db, "r")[0][3] == first["state"]
    assert len(db.sql("SELECT transfer_id FROM mmdb.transfer")) == 1


def test_a_candidate_of_a_run_without_a_warm_start_has_nothing_to_settle(db: Database) -> None:
    (candidate,) = db.run("parent").leaderboard()
    (row,) = db.sql(f"SELECT * FROM mmdb.begin_candidate({candidate['candidate_id']})")
    assert row["parent"] is row["state"] is None and "no warm start" in row["reason"]
    with pytest.raises(errors.CandidateNotFound):
        db.sql("SELECT * FROM mmdb.begin_candidate(12345)")


def test_a_beginning_that_is_rolled_back_is_settled_anew(db: Database) -> None:
    run = db.create_run("r", dataset="d", warm_start="parent", **RUNS["deep"])
    candidate_id = run.leaderboard()[0]["candidate_id"]
    if db.connection.engine == "postgres":  # DuckDB's functions have a session of their own
        with pytest.raises(ZeroDivisionError), db.connection.transaction():
            db.sql(f"SELECT * FROM mmdb.begin_candidate({candidate_id})")
            raise ZeroDivisionError
        assert warm(db, "r") == []
    parts = db.sql("SELECT part_id FROM mmdb.partition WHERE role = 'train' ORDER BY ordinal")
    done = 0
    for part in parts * len(parts):
        try:
            db.sql(f"SELECT * FROM mmdb.train_hop({part['part_id']}, {candidate_id}, 0)")
            done += 1
        except errors.OutOfTurn:
            continue
    assert done and len(warm(db, "r")) == 1
    assert chain(db, "r")[0][3] == hexed(warm(db, "r")[0]["state_hash"])


# -- in Python -------------------------------------------------------------------------


def child(hidden: tuple[int, ...] = (24, 8)) -> nn.Module:
    torch.manual_seed(5)
    return mlp((WIDTH,), CLASSES, hidden=list(hidden), batch_norm=True)


def test_a_module_gets_the_tensors_of_the_best_parent_in_place(db: Database) -> None:
    module, parent = child(), db.recover("parent")
    places = {path: tensor.data_ptr() for path, tensor in module.state_dict().items()}
    found = db.warm_start(module, dataset="d", metric="accuracy")
    assert found.parent == "parent@1" and found.exact and found.coverage == 1
    assert [one.path for one in found.tensors] == list(module.state_dict())
    assert {path: t.data_ptr() for path, t in module.state_dict().items()} == places
    assert module.training
    x, _ = held_out(db)
    assert torch.allclose(module.eval()(x), parent(x), atol=1e-5)


def warm_edges(db: Database, model: str) -> set[tuple[str, str]]:
    return {(r["parent"], r["child"]) for r in db.lineage(model) if r["via"] == "warm start"}


def test_a_module_that_is_saved_has_its_parent_in_its_lineage(db: Database) -> None:
    module = child()
    found = db.warm_start(module, "parent")
    saved = db.save("own", module, architecture=WIDE, dataset="d", warm=found)
    assert warm_edges(db, "own") == {("model:parent@1", "model:own@1")}
    (row,) = db.sql(f"SELECT * FROM mmdb.transfer WHERE model_id = {saved.model_id}")
    assert row["candidate_id"] is None and row["coverage"] == found.coverage
    options = row["options"] if isinstance(row["options"], dict) else json.loads(row["options"])
    assert options["version"] == OPERATORS_VERSION and options["seed"] == 0
    tensors = db.sql(
        f"SELECT count(*) AS n FROM mmdb.transfer_tensor WHERE transfer_id = {row['transfer_id']}"
    )
    assert tensors[0]["n"] == len(found.tensors)
    db.drop_model("parent")
    assert warm_edges(db, "own") == {("model:parent@1", "model:own@1")}


def test_the_same_seed_gives_a_module_the_same_tensors(db: Database) -> None:
    found = []
    for seed in (1, 1, 2):
        module = child((40, 8))
        db.warm_start(module, "parent", seed=seed)
        found.append(module.state_dict())
    assert all(torch.equal(found[0][path], found[1][path]) for path in found[0])
    assert not all(torch.equal(found[0][path], found[2][path]) for path in found[0])


class Stubborn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("this forward is for nobody")


def test_where_nothing_fits_a_module_stays_as_it_is_and_it_is_said(db: Database) -> None:
    module = child()
    before = {path: tensor.clone() for path, tensor in module.state_dict().items()}
    found = db.warm_start(module, threshold=0.999)
    assert found.parent is None and "parent@1" in found.reason
    with pytest.raises(errors.ModelNotFound):
        db.warm_start(module, "nothing")
    with pytest.raises(errors.InvalidOption, match="shrink"):
        db.warm_start(module, shrink=2.0)
    with pytest.raises(errors.DatasetNotFound):
        db.warm_start(module, dataset="nothing")
    assert all(torch.equal(t, before[path]) for path, t in module.state_dict().items())
    db.save("cold", module, architecture=WIDE, dataset="d", warm=found)
    assert not warm_edges(db, "cold")
    assert db.sql("SELECT count(*) AS n FROM mmdb.transfer")[0]["n"] == 0


def test_a_module_that_cannot_be_followed_is_an_error(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(errors.ArchitectureError, match="this forward is for nobody"):
        db.warm_start(Stubborn(), "parent")
    with pytest.raises(errors.ModelNotFound):
        monkeypatch.setattr(outside, "MOST_TRIES", 0)
        db.warm_start(child(), "nothing")
