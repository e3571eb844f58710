"""Finding parents, and who is in the zoo, on both engines."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import psycopg
import pytest
import torch
from torch import nn

from mmdb import errors
from mmdb.api import Database, connect
from mmdb.graph.trace import trace
from mmdb.store import registry
from mmdb.store.models import find_model
from mmdb.store.parents import Goal, Limits, choose_parent, take_parent
from mmdb.store.parents.outlines import VERSION, read_outlines, read_structure
from tests.points import fill


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with connect(database_url) as opened:
        yield opened


def net(*widths: int, seed: int = 0) -> nn.Sequential:
    """Return linear layers with something in between."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def save(
    db: Database,
    name: str,
    module: nn.Module,
    accuracy: float | None = None,
    dataset: str | None = None,
    **options: Any,
) -> str:
    """Save a model with an accuracy and return it as `name@version`."""
    metrics = {} if accuracy is None else {"accuracy": accuracy}
    return db.save(name, module, metrics=metrics, dataset=dataset, **options).reference


def rows(db: Database, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query as tuples."""
    return [tuple(row.values()) for row in db.sql(sql)]


def events(db: Database) -> list[tuple[Any, ...]]:
    """Return the zoo's decisions in order."""
    return rows(
        db, "SELECT model, version, event, by_rule FROM mmdb.zoo_decisions ORDER BY event_id"
    )


# -- outlines -----------------------------------------------------------------


def test_a_saved_architecture_has_an_outline_once(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    save(db, "a", net(2, 8, 2, seed=1))
    save(db, "b", net(2, 9, 2))
    found = rows(db, "SELECT version, layer_count, parameter_count FROM mmdb.outline ORDER BY 3")
    assert found == [(VERSION, 2, 42), (VERSION, 2, 47)]


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


# -- choosing -----------------------------------------------------------------


def test_the_same_architecture_comes_first_and_has_similarity_one(db: Database) -> None:
    save(db, "other", net(2, 9, 2))
    save(db, "same", net(2, 8, 2))
    choice = db.match(net(2, 8, 2))
    assert choice.parent is not None
    assert (choice.parent.model, choice.parent.similarity, choice.parent.coverage) == (
        "same@1",
        1,
        1,
    )
    assert [one.model for one in choice.candidates] == ["same@1", "other@1"]
    assert choice.candidates[1].similarity < 1


def test_within_a_bucket_the_better_one_is_the_parent(db: Database) -> None:
    save(db, "near", net(2, 64, 64, 2), 0.7)
    save(db, "good", net(2, 64, 66, 2), 0.9)
    save(db, "far", net(2, 64, 24, 2), 0.99)
    choice = db.match(net(2, 64, 65, 2), metric="accuracy")
    assert [one.model for one in choice.candidates] == ["good@1", "near@1", "far@1"]
    assert choice.candidates[0].accuracy == 0.9
    assert "less good than good@1" in choice.candidates[1].reason
    assert "less similar" in choice.candidates[2].reason


def test_of_equals_the_newest_is_the_parent(db: Database) -> None:
    for _ in range(3):
        save(db, "a", net(2, 8, 2), 0.9)
    assert [one.model for one in db.match(net(2, 8, 2)).candidates] == ["a@3", "a@2", "a@1"]


def test_the_dataset_comes_first_then_its_task_then_the_rest(db: Database) -> None:
    fill(db)
    db.create_dataset("e", "SELECT a, b, y FROM points WHERE id > 9", partitions=2)
    db.create_dataset("price", "SELECT a, b, price AS y FROM points", partitions=2)
    module = net(2, 32, 32, 2)
    save(db, "rest", module, 0.9, "price")
    save(db, "task", module, 0.9, "e")
    save(db, "data", net(2, 32, 24, 2), 0.8, "d")
    choice = db.match(module, dataset="d", metric="accuracy")
    assert [one.model for one in choice.candidates] == ["data@1", "task@1", "rest@1"]
    assert [one.dataset for one in choice.candidates] == ["d", "e", "price"]
    assert "of the same dataset" in choice.reason
    assert "further from the goal than data@1" in choice.candidates[1].reason
    choice = db.match(module, dataset="e", metric="accuracy")
    assert choice.parent is not None and choice.parent.model == "task@1"


def test_a_metric_on_the_goals_dataset_counts_before_the_models_own(db: Database) -> None:
    fill(db)
    save(db, "a", net(2, 8, 2), 0.9)
    save(db, "b", net(2, 8, 2), 0.8)
    db.log_metric("b", "accuracy", 0.95, dataset="d")
    choice = db.match(net(2, 8, 2), dataset="d", metric="accuracy")
    assert [(one.model, one.accuracy) for one in choice.candidates] == [("b@1", 0.95), ("a@1", 0.9)]


def test_less_of_a_loss_is_better(db: Database) -> None:
    for name, loss in (("a", 0.5), ("b", 0.2), ("c", 0.9)):
        db.save(name, net(2, 8, 2), metrics={"loss": loss})
    found = db.match(net(2, 8, 2), metric="loss").candidates
    assert [one.model for one in found] == ["b@1", "a@1", "c@1"]


def test_what_is_too_different_is_refused_with_a_reason(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    choice = db.match(nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Conv2d(64, 9, 3)))
    assert choice.parent is None
    (found,) = choice.candidates
    assert (found.model, found.is_fit) == ("a@1", False)
    assert "similarity is below 0.35" in found.reason
    assert "a@1" in choice.reason


def test_a_parent_that_covers_too_little_is_refused(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    structure = trace(net(2, 8, 2))
    choice = choose_parent(db.connection, structure, limits=Limits(similarity=0.0, coverage=1.1))
    assert choice.parent is None
    assert "less than 1.1" in choice.reason


def test_an_empty_zoo_says_so(db: Database) -> None:
    choice = db.match(net(2, 8, 2))
    assert (choice.parent, choice.candidates) == (None, ())
    assert "No model" in choice.reason
    db.save("weights", {"a": torch.zeros(3)})  # without an architecture
    assert db.match(net(2, 8, 2)).candidates == ()


def test_weights_that_are_no_numbers_are_refused(db: Database) -> None:
    for name, value in (("nan", float("nan")), ("inf", float("inf"))):
        module = net(2, 8, 2)
        with torch.no_grad():
            module.get_submodule("0").get_parameter("weight")[0, 0] = value
        save(db, name, module, 0.99)
    save(db, "sound", net(2, 8, 2), 0.6)
    choice = db.match(net(2, 8, 2))
    assert choice.parent is not None and choice.parent.model == "sound@1"
    assert [one.is_fit for one in choice.candidates] == [True, False, False]
    assert "finite" in choice.candidates[1].reason
    named = choose_parent(db.connection, trace(net(2, 8, 2)), parent="nan")
    assert named.parent is None and "finite" in named.reason


def test_an_infinite_buffer_is_no_fault(db: Database) -> None:
    module = net(2, 8, 2)
    module.register_buffer("mask", torch.full((2, 2), -float("inf")))
    save(db, "a", module)
    assert db.match(net(2, 8, 2)).parent is not None


def test_a_parent_that_has_learned_nothing_is_refused(db: Database) -> None:
    fill(db)
    save(db, "shuffled", net(2, 8, 2), 0.5, "d")
    choice = db.match(net(2, 8, 2), dataset="d", metric="accuracy")
    assert choice.parent is None
    assert "not above chance" in choice.reason
    db.zoo_admit("shuffled", "we know better")
    assert db.match(net(2, 8, 2), dataset="d", metric="accuracy").parent is not None


def test_a_parent_that_is_much_worse_than_others_is_refused(db: Database) -> None:
    fill(db)
    for k, accuracy in enumerate((0.97, 0.96, 0.98, 0.95, 0.97)):
        save(db, "wide", net(2, 64 + k, 64, 64, 2), accuracy, "d")
    save(db, "bad", net(2, 8, 2), 0.75, "d")
    choice = db.match(net(2, 8, 2), dataset="d", metric="accuracy")
    bad = next(one for one in choice.candidates if one.model == "bad@1")
    assert not bad.is_fit and "outlier among 6 models of d" in bad.reason


def test_the_first_fit_is_found_behind_many_that_are_not(db: Database) -> None:
    for k in range(12):
        module = net(2, 32, 32 + k, 2)
        with torch.no_grad():
            module.get_submodule("0").get_parameter("bias")[:] = float("nan")
        save(db, "bad", module)
    save(db, "good", net(2, 32, 80, 2))
    structure = trace(net(2, 32, 32, 2))
    choice = choose_parent(db.connection, structure, k=2)
    assert choice.parent is not None and choice.parent.model == "good@1"
    assert len(choice.candidates) == 2


def test_a_named_parent_is_taken_unless_it_has_nothing_to_give(db: Database) -> None:
    save(db, "small", net(2, 3, 2))
    save(db, "conv", nn.Sequential(nn.Conv2d(1, 1, 3)))
    structure = trace(net(2, 64, 64, 2))
    choice = choose_parent(db.connection, structure, parent="small@1")
    assert choice.parent is not None and choice.parent.model == "small@1"
    choice = choose_parent(db.connection, structure, parent="conv")
    assert choice.parent is None and "nothing in common" in choice.reason
    with pytest.raises(errors.ModelNotFound):
        choose_parent(db.connection, structure, parent="none")
    db.save("weights", {"a": torch.zeros(3)})
    with pytest.raises(errors.DefinitionMissing):
        choose_parent(db.connection, structure, parent="weights")


def test_models_can_be_left_out(db: Database) -> None:
    save(db, "a", net(2, 8, 2), 0.9)
    save(db, "b", net(2, 8, 2), 0.8)
    structure = trace(net(2, 8, 2))
    first = find_model(db.connection, "a").model_id
    choice = choose_parent(db.connection, structure, excluded=[first])
    assert choice.parent is not None and choice.parent.model == "b@1"


def test_the_pairs_are_layers_of_both(db: Database) -> None:
    save(db, "a", net(2, 8, 8, 2))
    choice = db.match(net(2, 8, 8, 8, 2))
    assert choice.parent is not None
    assert choice.parent.pairs[0] == (0, 0)
    assert choice.parent.pairs[-1] == (3, 2)
    assert 0 < choice.parent.coverage < 1


def test_a_drop_is_seen_at_the_next_search(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    save(db, "b", net(2, 9, 2))
    assert db.match(net(2, 8, 2)).candidates[0].model == "a@1"
    registry.drop_model(db.connection, "a")
    assert [one.model for one in db.match(net(2, 8, 2)).candidates] == ["b@1"]


def test_a_parent_that_was_dropped_since_it_was_found_cannot_be_taken(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    choice = db.match(net(2, 8, 2))
    registry.drop_model(db.connection, "a")
    assert choice.parent is not None
    with pytest.raises(errors.ModelNotFound, match="has been dropped since"):
        take_parent(db.connection, choice.parent)
    assert events(db) == []


def test_what_is_taken_is_a_hit(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    choice = db.match(net(2, 8, 2))
    assert choice.parent is not None
    with db.connection.transaction():
        take_parent(db.connection, choice.parent)
    assert events(db) == [("a", 1, "hit", True)]
    assert rows(db, "SELECT status, hits FROM mmdb.zoo") == [("admitted", 1)]


def test_the_rows_of_a_sample_rank_the_best_anew(db: Database) -> None:
    fill(db)
    db.create_dataset("levels", "SELECT a, b, level AS y FROM points", partitions=2)
    blind, seeing = net(2, 16, 2), net(2, 16, 2)
    with torch.no_grad():
        blind.get_submodule("0").get_parameter("weight").zero_()
    save(db, "blind", blind, 0.9, "levels")
    save(db, "seeing", seeing, 0.85, "levels")
    save(db, "other", net(3, 16, 2), 0.8, "levels")  # does not take the rows
    ranked = db.match(net(2, 16, 2), dataset="levels", metric="accuracy", sample=64).candidates
    assert [one.model for one in ranked] == ["seeing@1", "blind@1", "other@1"]
    assert "LogME" in ranked[0].reason and "does not take" in ranked[2].reason
    plain = db.match(net(2, 16, 2), dataset="levels", metric="accuracy").candidates
    assert plain[0].model == "blind@1"
    with pytest.raises(errors.InvalidOption):
        db.match(net(2, 16, 2), sample=64)


# -- SQL ----------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("'nothing', input_shape => ARRAY[2], outputs => 2", errors.UnknownFactory),
        ("'mlp(width=3)', input_shape => ARRAY[2], outputs => 2", errors.FactoryFailed),
        ("'{\"layers\": []}', input_shape => ARRAY[2], outputs => 2", errors.InvalidLayerGraph),
        ("'mlp'", errors.ArchitectureError),
        ("'mlp', dataset => 'none'", errors.DatasetNotFound),
        ("'a@3'", errors.ModelNotFound),
        ("'a@1', k => 0", errors.InvalidOption),
        ("'a@1', sample => -1", errors.InvalidOption),
    ],
)
def test_a_call_that_cannot_be_answered_is_an_error(
    db: Database, call: str, error: type[errors.MmdbError]
) -> None:
    save(db, "a", net(2, 8, 2))
    with pytest.raises(error):
        db.sql(f"SELECT * FROM mmdb.match({call})")
    assert rows(db, "SELECT count(*) FROM mmdb.match('a@1')") == [(1,)]


def test_an_architecture_with_too_many_nodes_is_saved_and_cannot_be_matched(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmdb.graph.outline_of_structure.MOST_NODES", 4)
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
        patch.setattr("mmdb.store.architectures.put_outline", broken)
        with pytest.raises(RuntimeError, match="broken"):
            save(db, "a", net(2, 8, 2))
    for table in TABLES:
        assert rows(db, f"SELECT count(*) FROM mmdb.{table}") == [(0,)]
    save(db, "a", net(2, 8, 2))
    assert db.match(net(2, 8, 2)).parent is not None


# -- who is in ----------------------------------------------------------------


def test_what_was_refused_is_no_parent_and_says_why(db: Database) -> None:
    save(db, "a", net(2, 8, 2))
    assert rows(db, "SELECT mmdb.zoo_refuse('a', 'trained on the test set')") == [("a@1",)]
    choice = db.match(net(2, 8, 2))
    assert choice.parent is None
    assert "trained on the test set" in choice.reason
    assert rows(db, "SELECT status, reason FROM mmdb.zoo") == [
        ("refused", "trained on the test set")
    ]
    assert rows(db, "SELECT mmdb.zoo_admit('a@1')") == [("a@1",)]
    assert db.match(net(2, 8, 2)).parent is not None
    assert events(db) == [("a", 1, "refused", False), ("a", 1, "admitted", False)]
    with pytest.raises(errors.ModelNotFound):
        db.zoo_admit("none")


def managed(db: Database, **options: Any) -> list[tuple[str, str]]:
    """Return models and events that the rules decide on."""
    return [(one.model, one.event) for one in db.manage_zoo(**options)]


def test_outliers_and_near_duplicates_are_refused_by_rule(db: Database) -> None:
    fill(db)
    for k, accuracy in enumerate((0.97, 0.96, 0.98, 0.95, 0.97)):
        save(db, "good", net(2, 64, 2**k, 2), accuracy, "d")
    save(db, "bad", net(2, 64, 64, 64, 2), 0.75, "d")
    save(db, "twin", net(2, 64, 1, 2), 0.968, "d")
    save(db, "luck", net(2, 64, 64, 2), 0.5, "d")
    save(db, "free", net(2, 64, 1, 2))
    decided = {one.model: one for one in db.manage_zoo()}
    assert {model: one.event for model, one in decided.items()} == {
        "good@1": "admitted", "good@2": "admitted", "good@3": "admitted", "good@4": "admitted",
        "good@5": "admitted", "free@1": "admitted",
        "bad@1": "refused", "twin@1": "refused", "luck@1": "refused",
    }  # fmt: skip
    assert "outlier" in decided["bad@1"].reason
    assert "nearly the same as good@1" in decided["twin@1"].reason
    assert "not above chance" in decided["luck@1"].reason
    assert events(db) == []  # a dry run
    assert len(db.manage_zoo(dry_run=False)) == 9
    assert managed(db) == []  # nothing has changed
    assert ("twin@1", "refused") not in managed(db)


def test_rules_leave_alone_what_somebody_said(db: Database) -> None:
    fill(db)
    save(db, "a", net(2, 8, 2), 0.9, "d")
    save(db, "b", net(2, 8, 2), 0.9, "d")
    db.zoo_refuse("a")
    db.zoo_admit("b")
    assert managed(db, dry_run=False) == []


def test_a_rule_takes_back_what_it_said(db: Database) -> None:
    fill(db)
    save(db, "a", net(2, 8, 2), 0.9, "d")
    save(db, "b", net(2, 8, 2), 0.9, "d")
    assert managed(db, dry_run=False) == [("a@1", "admitted"), ("b@1", "refused")]
    registry.drop_model(db.connection, "a")
    assert managed(db, dry_run=False) == [("b@1", "admitted")]
    assert events(db)[-1] == ("b", 1, "admitted", True)


def large(seed: int) -> nn.Module:
    """Return a model whose tensors have chunks of their own."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(100, 100 + seed), nn.ReLU(), nn.Linear(100 + seed, 100))


def test_models_go_until_the_rest_fits_and_those_that_are_needed_stay(db: Database) -> None:
    for seed in range(5):
        save(db, f"m{seed}", large(seed))
    registry.set_alias(db.connection, "m0", 1, "prod")
    choice = db.match(large(1))
    assert choice.parent is not None and choice.parent.model == "m1@1"
    take_parent(db.connection, choice.parent)
    (stored,) = rows(db, "SELECT sum(stored_bytes) FROM mmdb.encoding")
    budget = int(stored[0]) * 3 // 5
    plan = db.manage_zoo(budget)
    gone = [one for one in plan if one.event == "evicted"]
    assert [one.model for one in gone] == ["m2@1", "m3@1"]
    assert sum(one.bytes or 0 for one in gone) >= int(stored[0]) - budget
    assert rows(db, "SELECT count(*) FROM mmdb.model WHERE dropped_at IS NOT NULL") == [(0,)]
    db.sql(f"SELECT * FROM mmdb.manage_zoo({budget}, dry_run => FALSE)")
    left = rows(db, "SELECT model FROM mmdb.zoo ORDER BY model")
    assert left == [("m0",), ("m1",), ("m4",)]
    assert [e for e in events(db) if e[2] == "evicted"] == [
        ("m2", 1, "evicted", True),
        ("m3", 1, "evicted", True),
    ]
    db.gc(dry_run=False, grace="0 seconds")
    (after,) = rows(db, "SELECT sum(stored_bytes) FROM mmdb.encoding")
    assert int(after[0]) <= budget
    for name in ("m0", "m1", "m4"):
        db.recover(name)


def test_a_budget_of_nothing_keeps_what_must_stay(db: Database) -> None:
    for seed in range(3):
        save(db, f"m{seed}", large(seed))
    registry.set_alias(db.connection, "m1", 1, "prod")
    db.manage_zoo(0, dry_run=False)
    assert rows(db, "SELECT model FROM mmdb.zoo") == [("m1",)]
    with pytest.raises(errors.InvalidOption):
        db.manage_zoo(-1)


def test_a_model_that_comes_into_use_meanwhile_stays(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(db, "m", large(0))
    drop = registry.drop_model

    def used(connection: Any, model: str) -> Any:
        registry.set_alias(connection, "m", 1, "prod")
        return drop(connection, model)

    monkeypatch.setattr("mmdb.store.parents.managing.drop_model", used)
    assert [one for one in db.manage_zoo(0, dry_run=False) if one.event == "evicted"] == []
    assert rows(db, "SELECT model FROM mmdb.zoo") == [("m",)]


def test_the_zoo_names_metric_and_value_of_each_model(db: Database) -> None:
    fill(db)
    save(db, "a", net(2, 8, 2), 0.9, "d")
    db.save("weights", {"a": torch.zeros(3)})
    found = rows(db, "SELECT model, status, dataset, task, metric, value FROM mmdb.zoo ORDER BY 1")
    assert found == [
        ("a", "admitted", "d", "classification", "accuracy", 0.9),
        ("weights", "unknown", None, None, "accuracy", None),
    ]


# -- several sessions ---------------------------------------------------------


def test_sessions_that_save_and_search_at_once_agree(postgres_url: str) -> None:
    barrier = threading.Barrier(4)
    child = net(2, 30, 30, 2)

    def work(number: int) -> list[tuple[str, float, str]]:
        with connect(postgres_url) as db:
            barrier.wait(60)
            for k in range(8):
                own = net(2, 10 + 8 * number + k, 30, 2)
                reference = save(db, f"s{number}", own, 0.9)
                found = db.match(own, k=3)
                assert found.parent is not None
                assert (found.parent.model, found.parent.similarity) == (reference, 1.0)
                for one in found.candidates:  # each is, and is as similar as it says
                    assert 0 <= one.similarity <= 1
            barrier.wait(60)
            return answer(db, child)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(work, range(4)))
    with connect(postgres_url) as db:
        fresh = answer(db, child)
        assert len(fresh) == 32
        assert answers == [fresh] * 4
        query = "SELECT model, similarity, reason FROM mmdb.match('s0@1', 32)"
        inside = rows(db, query)
        assert [model for model, *_ in inside] == [
            one.model for one in db.match("s0@1", k=32).candidates
        ]


def answer(db: Database, child: nn.Module) -> list[tuple[str, float, str]]:
    """Return all that a search says, with models in place of versions that depend on time."""
    found = db.match(child, k=99).candidates
    return [(one.model, one.similarity, one.reason) for one in found]


def test_a_parent_can_be_taken_by_several_and_dropped_by_none_meanwhile(postgres_url: str) -> None:
    with connect(postgres_url) as db, connect(postgres_url) as other:
        save(db, "a", net(2, 8, 2))
        chosen = db.match(net(2, 8, 2)).parent
        assert chosen is not None
        with connect(postgres_url) as third:
            third.sql("SET lock_timeout = '200ms'")
            with db.connection.transaction(), other.connection.transaction():
                take_parent(db.connection, chosen)
                take_parent(other.connection, chosen)
                with pytest.raises(errors.DatabaseFailed, match="lock timeout"):
                    third.drop_model("a")
            third.drop_model("a")


def test_outlines_that_are_missing_can_be_made_by_several_at_once(postgres_url: str) -> None:
    with connect(postgres_url) as db:
        for k in range(6):
            save(db, "a", net(2, 8 + k, 2))
        db.sql("DELETE FROM mmdb.outline")
    barrier = threading.Barrier(4)

    def work(_: int) -> list[tuple[str, float, str]]:
        with connect(postgres_url) as db:
            barrier.wait(60)
            return answer(db, net(2, 9, 2))

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(work, range(4)))
    assert answers == [answers[0]] * 4
    with connect(postgres_url) as db:
        assert rows(db, "SELECT count(*) FROM mmdb.outline") == [(6,)]


# -- rights -------------------------------------------------------------------


def test_readers_see_the_views_and_trainers_may_do_all_of_it(postgres_url: str) -> None:
    with connect(postgres_url) as db:
        save(db, "a", net(2, 8, 2))
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SET ROLE mmdb_trainer")
        for call in ("match('a@1')", "zoo_refuse('a')", "zoo_admit('a')", "manage_zoo(0, FALSE)"):
            connection.execute(f"SELECT mmdb.{call}".encode())
        connection.execute("SET ROLE mmdb_reader")
        for view in ("zoo", "zoo_decisions", "transfer_map"):
            connection.execute(f"SELECT * FROM mmdb.{view}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT mmdb.match('a@1')")
        connection.rollback()


def test_goals_are_completed_from_their_dataset(db: Database) -> None:
    fill(db)
    db.create_dataset("e", "SELECT a, b, y FROM points WHERE id > 9", partitions=2)
    save(db, "task", net(2, 8, 2), 0.9, "e")
    (row,) = db.sql("SELECT dataset_id FROM mmdb.dataset WHERE name = 'd'")
    goals: Mapping[str, Goal] = {
        "of the same task": Goal(dataset_id=row["dataset_id"]),
        "of another task": Goal(task="regression"),
    }
    for said, goal in goals.items():
        choice = choose_parent(db.connection, trace(net(2, 8, 2)), goal)
        assert said in choice.reason
