"""The function mmdb.match, and what is left of a call that is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mmdb import errors
from mmdb.api import Database
from tests.points import fill
from tests.saved_models import net, rows, save

GRAPH = {
    "layers": [
        {"name": "a", "op": "Linear", "args": {"in_features": 2, "out_features": 8}},
        {"name": "r", "op": "ReLU"},
        {"name": "b", "op": "Linear", "args": {"in_features": 8, "out_features": 2}},
    ]
}


def test_match_takes_a_model_a_factory_and_a_layer_graph(db: Database) -> None:
    save(db, "a", net(2, 8, 2), 0.9)
    columns = "model, similarity, transferable_fraction, accuracy, dataset"
    expected = [("a@1", 1.0, 1.0, 0.9, None)]
    assert rows(db, f"SELECT {columns} FROM mmdb.match('a@1')") == expected
    shape = "input_shape => ARRAY[2], outputs => 2"
    call = f"mmdb.match('mlp(hidden=[8])', {shape})"
    assert rows(db, f"SELECT {columns} FROM {call}") == expected
    graph = json.dumps(GRAPH)
    assert rows(db, f"SELECT {columns} FROM mmdb.match('{graph}', {shape})") == expected
    assert db.match(GRAPH, input_shape=[2], outputs=2).reason == db.match("a@1").reason


def test_match_reads_input_and_outputs_off_a_dataset(db: Database) -> None:
    fill(db)
    save(db, "a", net(2, 8, 2), 0.9, "d")
    query = "SELECT model, similarity, reason FROM mmdb.match('mlp(hidden=[8])', dataset => 'd')"
    ((model, similarity, reason),) = rows(db, query)
    assert (model, similarity) == ("a@1", 1.0)
    assert reason == "of the same dataset, similarity 1.00, accuracy 0.9"
    (newest,) = rows(db, "SELECT model, similarity FROM mmdb.match('mlp(hidden=[8])', 1)")
    assert newest == ("a@1", 1.0)


def test_match_has_one_row_with_the_reason_where_nothing_is_to_be_found(db: Database) -> None:
    query = "SELECT * FROM mmdb.match('mlp', input_shape => ARRAY[2], outputs => 2)"
    (row,) = db.sql(query)
    assert row["model"] is None and row["similarity"] is None
    assert "No model" in row["reason"]


#: Calls that cannot be answered, where `a` has one version.
REFUSED = [
    ("'nothing', input_shape => ARRAY[2], outputs => 2", errors.UnknownFactory),
    ("'mlp(width=3)', input_shape => ARRAY[2], outputs => 2", errors.FactoryFailed),
    ("'{\"layers\": []}', input_shape => ARRAY[2], outputs => 2", errors.InvalidLayerGraph),
    ("'mlp'", errors.ArchitectureError),
    ("'mlp', dataset => 'none'", errors.DatasetNotFound),
    ("'a@3'", errors.ModelNotFound),
    ("'a@1', k => 0", errors.InvalidOption),
    ("'a@1', sample => -1", errors.InvalidOption),
]


def test_a_call_that_cannot_be_answered_is_an_error(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    for call, error in REFUSED:
        with pytest.raises(error):
            db.sql(f"SELECT * FROM mmdb.match({call})")
        assert rows(db, "SELECT count(*) FROM mmdb.match('a@1')") == [(1,)], call


TABLES = ("architecture", "architecture_node", "outline", "definition", "model", "zoo_event")


def test_nothing_is_left_of_what_was_refused(db: Database) -> None:
    save(db, "a", net(2, 8, 2))

    def count() -> list[tuple[Any, ...]]:
        return [rows(db, f"SELECT count(*) FROM mmdb.{table}")[0] for table in TABLES]

    before = count()
    loop = json.loads(json.dumps(GRAPH))
    loop["layers"][0]["inputs"] = ["b"]
    with pytest.raises(errors.InvalidLayerGraph, match="order"):
        db.match(loop, input_shape=[2], outputs=2)
    with pytest.raises(errors.InvalidLayerGraph):
        rows(db, f"SELECT * FROM mmdb.match('{json.dumps(loop)}', 1, NULL, NULL, ARRAY[2], 2)")
    with pytest.raises(errors.InvalidLayerGraph):
        db.save("loop", net(2, 8, 2), architecture=loop, input_shape=[2], outputs=2)
    with pytest.raises(errors.ModelNotFound):
        db.zoo_refuse("none")
    assert count() == before


def test_an_outline_that_cannot_be_made_saves_nothing(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr("mmdb.store.models.architectures.put_outline", broken)
        with pytest.raises(RuntimeError, match="broken"):
            save(db, "a", net(2, 8, 2))
    for table in TABLES:
        assert rows(db, f"SELECT count(*) FROM mmdb.{table}") == [(0,)]
    save(db, "a", net(2, 8, 2))
    assert db.match(net(2, 8, 2)).parent is not None
