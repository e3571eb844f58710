"""Which model is the parent, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn

from mmdb import errors
from mmdb.api import Database
from mmdb.graph.trace.call_tracer import trace
from mmdb.store.models import registry
from mmdb.store.models.model_rows import find_model
from mmdb.store.parents import Limits, ParentGoal, choose_parent, take_parent
from tests.points import fill
from tests.saved_models import events, net, rows, save


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
    save(db, "other", net(3, 16, 2), 0.84, "levels")  # does not take the rows
    ranked = db.match(net(2, 16, 2), dataset="levels", metric="accuracy", sample=64).candidates
    assert [one.model for one in ranked] == ["seeing@1", "blind@1", "other@1"]
    assert "LogME" in ranked[0].reason and "does not take" in ranked[2].reason
    plain = db.match(net(2, 16, 2), dataset="levels", metric="accuracy").candidates
    assert plain[0].model == "blind@1"
    with pytest.raises(errors.InvalidOption):
        db.match(net(2, 16, 2), sample=64)


def test_goals_are_completed_from_their_dataset(db: Database) -> None:
    fill(db)
    db.create_dataset("e", "SELECT a, b, y FROM points WHERE id > 9", partitions=2)
    save(db, "task", net(2, 8, 2), 0.9, "e")
    (row,) = db.sql("SELECT dataset_id FROM mmdb.dataset WHERE name = 'd'")
    goals: Mapping[str, ParentGoal] = {
        "of the same task": ParentGoal(dataset_id=row["dataset_id"]),
        "of another task": ParentGoal(task="regression"),
    }
    for said, goal in goals.items():
        choice = choose_parent(db.connection, trace(net(2, 8, 2)), goal)
        assert said in choice.reason
