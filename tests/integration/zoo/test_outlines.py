"""Outlines: made when a model is saved, or at the first search."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mmdb import errors
from mmdb.api import Database, connect
from mmdb.graph.trace.call_tracer import trace
from mmdb.store.models import registry
from mmdb.store.models.architectures import VERSION, read_outlines, read_structure
from mmdb.store.models.model_rows import find_model
from tests.saved_models import net, rows, save


def test_a_saved_architecture_has_an_outline_once(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    save(db, "a", net(2, 8, 2, seed=1))
    save(db, "b", net(2, 9, 2))
    found = rows(db, "SELECT version, layer_count, parameter_count FROM mmdb.outline ORDER BY 3")
    assert found == [(VERSION, 2, 42), (VERSION, 2, 47)]


def test_what_is_tied_or_called_twice_is_counted_once(db: Database) -> None:
    tied = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
    tied[1].weight = tied[0].weight
    layer = nn.Linear(4, 4)
    save(db, "tied", tied)
    save(db, "twice", nn.Sequential(layer, nn.ReLU(), layer))
    for view in ("model_overview", "zoo"):
        found = rows(db, f"SELECT model, parameters FROM mmdb.{view} ORDER BY 1")
        assert found == [("tied", 28), ("twice", 20)]


def test_an_outline_is_that_of_the_stored_structure(db: Database) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.TransformerEncoderLayer(8, 2, 16), nn.Linear(8, 2))
    model = find_model(db.connection, save(db, "a", module))
    assert model.architecture_id is not None
    (before,) = read_outlines(db.connection, [model.architecture_id]).values()
    db.sql("DELETE FROM mmdb.outline")
    (after,) = read_outlines(db.connection, [model.architecture_id]).values()
    assert after.to_bytes() == before.to_bytes()
    structure = read_structure(db.connection, model.architecture_id)
    assert structure.canonical_hash == trace(module).canonical_hash


@pytest.mark.parametrize(
    "change", ["DELETE FROM mmdb.outline", "UPDATE mmdb.outline SET version = 0"]
)
def test_models_without_an_outline_of_this_version_get_one_at_the_first_search(
    db: Database, change: str
) -> None:
    save(db, "a", net(2, 8, 2))
    db.sql(change)
    choice = db.match(net(2, 8, 2))
    assert choice.parent is not None and choice.parent.model == "a@1"
    assert rows(db, f"SELECT count(*) FROM mmdb.outline WHERE version = {VERSION}") == [(1,)]


def test_a_damaged_outline_is_made_anew(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    db.sql("UPDATE mmdb.outline SET packed = packed || packed")
    assert [one.model for one in db.match(net(2, 8, 2)).candidates] == ["a@1"]


def test_a_transaction_that_may_not_write_finds_old_models_too(postgres_url: str) -> None:
    with connect(postgres_url) as db:
        save(db, "a", net(2, 8, 2))
        db.sql("DELETE FROM mmdb.outline")
        db.sql("SET default_transaction_read_only = on")
        assert db.match(net(2, 8, 2)).candidates[0].model == "a@1"
        query = "SELECT model FROM mmdb.match('a@1')"
        assert rows(db, query) == [("a@1",)]
        assert rows(db, "SELECT count(*) FROM mmdb.outline") == [(0,)]


def test_garbage_collection_takes_the_outlines_of_architectures_that_no_model_has(
    db: Database,
) -> None:
    save(db, "a", net(2, 8, 2))
    save(db, "b", net(2, 9, 2))
    registry.drop_model(db.connection, "a")
    db.gc(dry_run=False, grace="0 seconds")
    assert rows(db, "SELECT count(*) FROM mmdb.outline") == [(1,)]
    assert [one.model for one in db.match(net(2, 8, 2)).candidates] == ["b@1"]


def test_an_architecture_with_too_many_nodes_is_saved_and_cannot_be_matched(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmdb.graph.ops.node_contraction.MOST_NODES", 4)
    save(db, "large", net(2, 8, 2))
    assert rows(db, "SELECT count(*) FROM mmdb.outline") == [(0,)]
    with pytest.raises(errors.ArchitectureError, match="5 nodes"):
        db.match(net(2, 8, 2))
    assert db.match(nn.Linear(2, 2)).candidates == ()


class Branching(nn.Module):
    """Its forward depends on the data, and cannot be followed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, width), nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x)) if x.sum() > 0 else x


def test_a_module_that_cannot_be_followed_is_compared_by_its_layers(db: Database) -> None:
    save(db, "a", Branching(8))
    assert rows(db, "SELECT status, is_traced FROM mmdb.zoo") == [("admitted", False)]
    same, wider = db.match(Branching(8)), db.match(Branching(12))
    assert same.parent is not None and same.parent.similarity == 1
    assert wider.parent is not None and 0 < wider.parent.similarity < 1
    assert db.match(net(2, 8, 2)).candidates[0].model == "a@1"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_parent_of_another_dtype_is_found(db: Database, dtype: torch.dtype) -> None:
    save(db, "a", net(2, 8, 2).to(dtype))
    choice = db.match(net(2, 8, 2))
    assert choice.parent is not None
    assert (choice.parent.similarity, choice.parent.coverage) == (1, 1)
    (outlines,) = rows(db, "SELECT count(*) FROM mmdb.outline")
    save(db, "b", net(2, 8, 2))
    assert rows(db, "SELECT count(*) FROM mmdb.outline") == [(outlines[0] + 1,)]
