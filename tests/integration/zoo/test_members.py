"""Who is in the zoo: what people and rules decide, and who may."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import torch
from torch import nn

from mmdb import errors
from mmdb.api import Database, connect
from mmdb.store.models import registry
from mmdb.store.parents import take_parent
from tests.points import fill
from tests.saved_models import events, net, rows, save


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


def test_readers_see_the_views_and_trainers_may_do_all_of_it(postgres_url: str) -> None:
    with connect(postgres_url) as db:
        save(db, "a", net(2, 8, 2))
        db.sql("UPDATE mmdb.model SET owner = 'mmdb_trainer'")
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
