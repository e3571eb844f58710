"""Models without lineage: what they are kept as differences to, and parents that are suggested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import mmdb
from mmdb import errors

State = dict[str, torch.Tensor]


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        yield database


def drawn(seed: int) -> State:
    """Return weights as torch begins with them."""
    torch.manual_seed(seed)
    shapes = {"0.weight": (128, 96), "0.bias": (128,), "2.weight": (96, 128)}
    return {path: torch.rand(shape) * 0.4 - 0.2 for path, shape in shapes.items()}


def tuned(state: State, seed: int, size: float = 1e-3) -> State:
    """Return weights after a training: a step with heavy tails."""
    torch.manual_seed(seed)
    step = torch.distributions.Laplace(0.0, size)
    return {path: values + step.sample(values.shape) for path, values in state.items()}


def base_of(db: mmdb.Database, model: str) -> Any:
    (row,) = db.sql(
        "SELECT approach, parent, reason ->> 'base' AS base FROM mmdb.model_overview"
        " WHERE model = $1".replace("$1", f"'{model}'")
    )
    return row["approach"], row["parent"], row["base"]


def family(db: mmdb.Database, folder: Path) -> dict[str, State]:
    """Import a root, its children and a grandchild out of order, and a network of no relation."""
    root, stranger = drawn(1), drawn(2)
    states = {"first": tuned(root, 3, 0.03), "stranger": stranger, "root": root}
    states |= {"second": tuned(root, 4, 0.03), "grandchild": tuned(states["first"], 5, 0.02)}
    for name, state in states.items():
        save_file(state, folder / f"{name}.safetensors")
        db.import_model(folder / f"{name}.safetensors", name)
    return states


def read(db: mmdb.Database, model: str) -> State:
    tensors = db.model(model).tensors
    return {path: tensors[path] for path in tensors}


def same(found: State, state: State) -> bool:
    return found.keys() == state.keys() and all(torch.equal(found[p], state[p]) for p in state)


def test_parents_are_suggested_and_become_lineage_when_they_are_accepted(
    db: mmdb.Database, tmp_path: Path
) -> None:
    family(db, tmp_path)
    parents = {
        **{"first@1": "root@1", "second@1": "root@1", "grandchild@1": "first@1"},
        **{"root@1": None, "stranger@1": None},
    }
    found = db.propose_parents()
    assert {one.model: one.parent for one in found} == parents
    assert all((one.similarity is None) == (one.parent is None) for one in found)
    rows = db.sql("SELECT model, parent, similarity, reason FROM mmdb.propose_parents()")
    assert [(r["model"], r["parent"], r["reason"]) for r in rows] == [
        (one.model, one.parent, one.reason) for one in found
    ]
    near = db.similar_models("first")
    assert [one.relation for one in near] == ["parent", "child", "relative"]
    assert near[0].other == "root@1" and near[1].other == "grandchild@1"
    assert all("suggested" in one.reason and 0.5 < one.similarity < 1 for one in near)
    (row,) = db.sql("SELECT other, relation FROM mmdb.similar_models('second@1', 1)")
    assert row == {"other": "root@1", "relation": "parent"}
    assert db.similar_models("stranger") == []
    # Nothing has become lineage by that.
    edges = "SELECT parent, child, via FROM mmdb.lineage_edge WHERE parent_kind = 'model'"
    assert db.sql(edges) == []
    assert db.accept_parent("first", "root") == "first@1"
    (row,) = db.sql("SELECT mmdb.accept_parent('grandchild', 'first@1') AS said")
    assert row["said"] == "grandchild@1"
    assert sorted(row["parent"] + row["via"] for row in db.sql(edges)) == [
        "model:first@1accepted",
        "model:root@1accepted",
    ]
    assert [row["parent"] for row in db.lineage("grandchild") if row["kind"] == "model"] == [
        "model:first@1",
        "model:root@1",
    ]
    left = {one.model: one.parent for one in db.propose_parents()}
    assert left == {k: p for k, p in parents.items() if k not in ("first@1", "grandchild@1")}
    assert db.similar_models("first")[0].reason == "recorded"
    with pytest.raises(errors.InvalidOption, match="is, or was made from"):
        db.accept_parent("root", "grandchild")
    db.accept_parent("first", None)
    assert db.propose_parents()[0].parent == "root@1"


def test_what_cannot_be_accepted_is_refused(db: mmdb.Database) -> None:
    state = drawn(1)
    db.save("a", state)
    db.save("b", tuned(state, 2), parent="a")
    with pytest.raises(errors.InvalidOption, match="has a parent already"):
        db.accept_parent("b", None)
    with pytest.raises(errors.InvalidOption, match="itself"):
        db.accept_parent("a", "a")
    for call in (db.similar_models, lambda model: db.accept_parent(model, "a")):
        with pytest.raises(errors.ModelNotFound):
            call("nobody")
    with pytest.raises(errors.InvalidOption):
        db.similar_models("a", 0)
    db.save("small", {"bias": torch.rand(3)})
    assert db.similar_models("small") == []
    db.save("empty", {})
    assert [one.model for one in db.propose_parents()] == ["a@1"]


def test_a_difference_finds_its_base_and_comes_back_bit_for_bit(
    db: mmdb.Database, tmp_path: Path
) -> None:
    states: dict[str, State] = {f"net{k}": drawn(k) for k in range(4)}
    for name, state in states.items():
        db.save(name, state)
    for k in range(4):
        name = f"tuned{k}"
        states[name] = tuned(states[f"net{k}"], 10 + k, 1e-4)
        save_file(states[name], tmp_path / name)
        imported = db.import_model(tmp_path / name, name, format="safetensors")
        assert base_of(db, name) == ("update", None, f"net{k}@1")
        assert imported.stored_bytes < 0.8 * sum(t.nbytes for t in states[name].values())
    db.save("alone", states["net1"] | {"0.bias": torch.zeros(128)}, approach="snapshot")
    assert base_of(db, "alone")[2] is None
    with pytest.raises(errors.NoParent):
        db.save("odd", {"w": torch.rand(200, 300)}, approach="update")
    # A base stays as long as something is kept against it.
    for name in [f"net{k}" for k in range(4)]:
        db.drop_model(f"{name}@1")
    db.gc(dry_run=False, grace="0 days")
    assert all(same(read(db, f"tuned{k}"), states[f"tuned{k}"]) for k in range(4))
    for k in range(4):
        db.drop_model(f"tuned{k}@1")
    db.drop_model("alone@1")
    for _ in range(2):  # first the differences, then what they were differences to
        db.gc(dry_run=False, grace="0 days")
    assert db.sql("SELECT count(*) AS left_over FROM mmdb.tensor_chunk") == [{"left_over": 0}]


def test_a_difference_keeps_nothing_that_could_be_forgotten(db: mmdb.Database) -> None:
    db.sql("CREATE TABLE point AS SELECT i AS a, i % 2 AS y FROM generate_series(1, 8) AS g (i)")
    db.create_dataset("points", "SELECT a, y FROM point", label="y")
    state = drawn(1)
    db.save("of_rows", state)
    db.sql("UPDATE mmdb.model SET dataset_id = (SELECT max(dataset_id) FROM mmdb.dataset)")
    db.save("child", tuned(state, 2, 1e-4), parent="of_rows")
    db.save("stranger", tuned(state, 3, 1e-4))
    assert base_of(db, "child")[2] is None
    assert base_of(db, "stranger")[2] is None


def test_no_base_is_taken_of_a_dropped_model_or_of_a_damaged_one(db: mmdb.Database) -> None:
    state = drawn(1)
    db.save("dropped", state)
    db.drop_model("dropped@1")
    db.save("next", tuned(state, 2, 1e-4))
    assert base_of(db, "next")[2] is None
    large = {"w": torch.rand(600, 512)}
    db.save("large", large)
    for damaged in ("ordinal = 0", "true"):  # a chunk that is not looked at, and one that is
        db.sql(f"DELETE FROM mmdb.tensor_chunk WHERE {damaged}")
        again = tuned(large, 3, 1e-4)
        db.save("again", again)
        assert same(read(db, "again"), again)


def test_a_difference_without_a_parent_is_copied_with_its_base(
    db: mmdb.Database, tmp_path: Path
) -> None:
    state = drawn(1)
    other = tuned(state, 2, 1e-4)
    db.save("net", state)
    db.save("tuned", other)
    url = f"duckdb:///{tmp_path / 'there.duckdb'}"
    db.push("tuned", to=url)
    with mmdb.connect(url) as target:
        assert same(read(target, "tuned"), other)
        assert target.propose_parents()[0].parent is None
