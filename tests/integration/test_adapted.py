"""Adapters as models of their own: trained on a frozen base, whose tensors they share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import mmdb
from mmdb.errors import BackboneMissing, ModelInUse
from tests.copies import Copies

ROWS = 400
BASE = "mlp(hidden=[64, 64])"
ADAPTED = {"adapted": BASE, "adapter": {"name": "lora", "layers": ["1", "3"], "train": ["5"]}}
SEARCH = {"method": "grid", "space": {"lr": [0.05], "architecture.rank": [1, 2]}}


def fill(db: mmdb.Database) -> None:
    """Train a base, and adapters of it."""
    numbers = ", ".join(
        f"((i * {7 + k}) % 401 / 17.0)::double precision AS a{k}" for k in range(30)
    )
    db.sql(
        f"CREATE TABLE thing AS SELECT i AS id, {numbers}, (i * 7) % 401 > 200 AS y,"
        f" (i * 8) % 401 > 200 AS z FROM generate_series(1, {ROWS}) AS g (i)"
    )
    columns = ", ".join(f"a{k}" for k in range(30))
    for label in "yz":
        db.create_dataset(f"of_{label}", f"SELECT {columns}, {label} FROM thing", label=label)
    db.create_run("base", dataset="of_y", architecture=BASE, epochs=2).train(workers=1)
    run = db.create_run(
        "other", dataset="of_z", architecture=ADAPTED, epochs=4, search=SEARCH, warm_start="base"
    )
    run.train(workers=1)


@pytest.fixture(params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, copies: Copies) -> Iterator[mmdb.Database]:
    with copies.open(request.param, fill) as database:
        yield database


def test_an_adapter_shares_its_bases_tensors(db: mmdb.Database) -> None:
    base, module = db.recover("base").state_dict(), db.recover("other")
    found = module.state_dict()
    frozen = [path for path in base if not path.startswith("5.")]
    assert all(torch.equal(base[path], found[path]) for path in frozen)
    assert not torch.equal(base["5.weight"], found["5.weight"])
    trained = {path for path, p in module.named_parameters() if p.requires_grad}
    assert trained == set(found) - set(frozen)
    own = sum(found[path].nbytes for path in trained)
    whole = sum(tensor.nbytes for tensor in found.values())
    (row,) = db.sql("SELECT stored_bytes FROM mmdb.model_overview WHERE model = 'other'")
    assert row["stored_bytes"] < 1.1 * own + 300  # of the base nothing is stored anew
    assert own < whole / 10
    found_rows = list(db.predict_query("other", "SELECT * FROM thing"))
    assert len(found_rows) == ROWS


def test_an_adapter_takes_what_a_base_in_memory_has(db: mmdb.Database) -> None:
    base, alone = db.recover("base"), db.recover("other")
    frozen = {path for path, p in alone.named_parameters() if not p.requires_grad}
    for round_ in range(3):
        if round_ == 2:  # it is the base no longer
            with torch.no_grad():
                base.get_parameter("1.weight").add_(1)
        found = db.recover("other", base=base)
        assert all(torch.equal(t, found.state_dict()[p]) for p, t in alone.state_dict().items())
        for path, own in found.named_parameters():
            there = dict(base.named_parameters()).get(path)
            is_shared = there is not None and there.data_ptr() == own.data_ptr()
            assert is_shared == (path in frozen and (round_, path) != (2, "1.weight")), path
            assert own.requires_grad == (path not in frozen)


def test_a_state_leaves_out_what_the_base_has(db: mmdb.Database) -> None:
    base, module = db.recover("base").state_dict(), db.recover("other")
    frozen = sum(tensor.nbytes for tensor in base.values())
    hops = db.sql(
        "SELECT h.state_bytes FROM mmdb.hop AS h"
        " INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id"
        " INNER JOIN mmdb.run AS r ON c.run_id = r.run_id"
        " WHERE r.name = 'other' AND h.state_bytes > 0"
    )
    own = sum(p.nbytes for p in module.parameters() if p.requires_grad)
    assert max(row["state_bytes"] for row in hops) < 3 * own + 8000 < frozen


def test_a_plan_counts_what_states_hold(db: mmdb.Database) -> None:
    found, search = {}, {"method": "grid", "space": {"lr": [0.05], "architecture.rank": [3]}}
    for name, parent in (("planned", "base"), ("alone", "off")):  # of which nothing is measured
        run = db.create_run(
            name, dataset="of_z", architecture=ADAPTED, search=search, warm_start=parent
        )
        row = next(row for row in run.explain().estimates if row["strategy"] == "mop")
        found[name] = row["bytes_moved"]
    module = db.recover("base")
    whole = sum(p.nbytes for p in module.parameters())
    own = whole - sum(
        module.get_parameter(f"{k}.{p}").nbytes for k in "13" for p in ("weight", "bias")
    )
    assert own < whole / 20
    assert 0 < found["planned"] < found["alone"] / 3


def test_a_recipe_needs_the_base_and_says_so(db: mmdb.Database) -> None:
    (best,) = db.sql("SELECT candidate_id FROM mmdb.leaderboard WHERE run = 'other' AND rank = 1")
    saved = db.save_candidate(best["candidate_id"], "recipe", approach="provenance")
    with pytest.raises(ModelInUse, match=r"where the recipe of model 'recipe@1' begins"):
        db.drop_model("base")
    expected = db.recover("other").state_dict()
    for path, tensor in db.recover(saved).state_dict().items():
        assert torch.equal(expected[path], tensor), path
    db.drop_model("recipe")
    db.drop_model("base")
    with pytest.raises(BackboneMissing, match="adapts was dropped"):
        db.save_candidate(best["candidate_id"], "late")


def test_a_clone_goes_on_over_the_same_base(db: mmdb.Database) -> None:
    (best,) = db.sql("SELECT candidate_id FROM mmdb.leaderboard WHERE run = 'other' AND rank = 1")
    clone = db.clone_candidate(best["candidate_id"], {"lr": 0.02})
    db.run("other").train(workers=2)
    (trained,) = db.sql(
        f"SELECT status, hops_done FROM mmdb.candidate_overview WHERE candidate_id = {clone}"
    )
    assert trained["status"] == "trained"
    assert trained["hops_done"] > 0
    base = db.recover("base").state_dict()
    found = db.recover(db.save_candidate(clone, "clone")).state_dict()
    assert torch.equal(base["1.weight"], found["1.weight"])


def test_it_goes_on_learning_from_where_it_is(db: mmdb.Database) -> None:
    before = db.recover("other").state_dict()
    db.create_run(
        "more", dataset="of_z", architecture=ADAPTED, epochs=1, warm_start="other",
        search={"method": "grid", "space": {"lr": [0.01], "architecture.rank": [
            before["1.adapter_a"].shape[0]]}},
    ).train(workers=1)  # fmt: skip
    after = db.recover("more").state_dict()
    assert torch.equal(before["1.weight"], after["1.weight"])
    assert not torch.equal(before["1.adapter_b"], after["1.adapter_b"])
    apart = (after["1.adapter_b"] - before["1.adapter_b"]).abs().max()
    assert apart < before["1.adapter_b"].abs().max()
