"""Aliases, tags, notes and metrics, comparing models, searching and dropping them, in SQL."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import psycopg
import pytest
import torch

from mmdb import errors
from mmdb.api import Database, connect
from mmdb.db.connection import Connection
from mmdb.store.models import registry
from mmdb.store.models.diff import TensorDifference, model_diff
from mmdb.store.models.model_rows import SavedModel, find_model
from mmdb.store.models.save import About, save_model

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with connect(database_url) as opened:
        yield opened


def tensors(seed: int = 0) -> Tensors:
    """Return a small model: two tensors with chunks of their own, two in the pack."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "body.weight": torch.randn(64, 64, generator=generator),
        "body.bias": torch.randn(64, generator=generator),
        "head.weight": torch.randn(40, 64, generator=generator),
        "head.bias": torch.randn(40, generator=generator),
    }


def rows(db: Database, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query as tuples."""
    return [tuple(row.values()) for row in db.sql(sql)]


@pytest.fixture
def saved(db: Database) -> Database:
    """Return a database with three versions of model `net`."""
    for seed in range(3):
        save_model(db.connection, "net", tensors(seed))
    return db


# -- aliases ------------------------------------------------------------------


def test_an_alias_names_a_version_until_it_is_moved(saved: Database) -> None:
    assert rows(saved, "SELECT mmdb.set_alias('net', 1, 'prod')") == [("net@1",)]
    assert find_model(saved.connection, "net@prod").version == 1
    assert rows(saved, "SELECT mmdb.set_alias('net', 2, 'prod')") == [("net@2",)]
    assert find_model(saved.connection, "net@prod").version == 2
    assert rows(saved, "SELECT model, alias, version FROM mmdb.model_alias") == [("net", "prod", 2)]


def test_an_alias_can_follow_another(saved: Database) -> None:
    registry.set_alias(saved.connection, "net", 2, "candidate")
    assert rows(saved, "SELECT mmdb.set_alias('net@candidate', NULL, 'prod')") == [("net@2",)]


def test_the_moves_of_an_alias_are_kept(saved: Database) -> None:
    registry.set_alias(saved.connection, "net", 1, "prod")
    registry.set_alias(saved.connection, "net", 3, "prod")
    assert rows(saved, "SELECT mmdb.drop_alias('net', 'prod')") == [("net@3",)]
    assert rows(saved, "SELECT version FROM mmdb.alias_history ORDER BY event_id") == [
        (1,),
        (3,),
        (None,),
    ]
    assert rows(saved, "SELECT alias FROM mmdb.model_alias") == []
    with pytest.raises(errors.ModelNotFound):
        find_model(saved.connection, "net@prod")
    with pytest.raises(errors.AliasNotFound, match="'prod'"):
        registry.drop_alias(saved.connection, "net", "prod")


def test_the_history_says_who_moved_an_alias(postgres_url: str) -> None:
    with connect(postgres_url) as db:
        save_model(db.connection, "net", tensors())
        db.sql("SELECT mmdb.set_alias('net', 1, 'prod')")
        assert rows(db, "SELECT author FROM mmdb.alias_history") == [("postgres",)]


@pytest.mark.parametrize("alias", ["7", "", "a b", "a@b", None])
def test_a_name_that_is_no_alias_is_refused(saved: Database, alias: Any) -> None:
    with pytest.raises(errors.InvalidName):
        registry.set_alias(saved.connection, "net", 1, alias)


@pytest.mark.parametrize(("model", "version"), [("net", 9), ("nothing", 1), ("net@1", 1)])
def test_an_alias_needs_a_version_that_exists(saved: Database, model: str, version: int) -> None:
    with pytest.raises(errors.ModelNotFound):
        registry.set_alias(saved.connection, model, version, "prod")


def test_an_alias_cannot_move_to_a_dropped_version(saved: Database) -> None:
    registry.drop_model(saved.connection, "net", 2)
    with pytest.raises(errors.ModelNotFound):
        registry.set_alias(saved.connection, "net", 2, "prod")


# -- tags, metrics and notes --------------------------------------------------


def test_a_tag_has_one_value_and_can_be_taken_away(saved: Database) -> None:
    for value in ("'vision'", "'speech'"):
        saved.sql(f"SELECT mmdb.tag_model('net@1', 'task', {value})")
    registry.tag_model(saved.connection, "net", "task", "vision")
    by_tag = "SELECT model, version FROM mmdb.tag_overview WHERE key = 'task' AND value = {}"
    assert rows(saved, by_tag.format("'speech'")) == [("net", 1)]
    assert rows(saved, by_tag.format("'vision'")) == [("net", 3)]
    saved.sql("SELECT mmdb.tag_model('net@1', 'task', NULL)")
    assert rows(saved, by_tag.format("'speech'")) == []


def test_models_are_found_by_metric(db: Database) -> None:
    save_model(db.connection, "net", tensors(), about=About(metrics={"accuracy": 0.5}))
    save_model(db.connection, "net", tensors(1))
    assert rows(db, "SELECT mmdb.log_metric('net', 'accuracy', 0.75)") == [("net@2",)]
    db.sql("SELECT mmdb.log_metric('net', 'accuracy', 0.8)")
    db.sql("SELECT mmdb.log_metric('net', 'accuracy', 0.9, dataset => 'holdout')")
    query = (
        "SELECT version, dataset, value FROM mmdb.metric_overview"
        " WHERE metric = 'accuracy' AND value > 0.6 ORDER BY value"
    )
    assert rows(db, query) == [(2, "", 0.8), (2, "holdout", 0.9)]
    with pytest.raises(errors.InvalidOption, match="The dataset is NULL"):
        db.sql("SELECT mmdb.log_metric('net', 'accuracy', 0.8, NULL)")
    with pytest.raises(errors.InvalidOption, match="The dataset's name has 1,048,576 bytes"):
        db.sql("SELECT mmdb.log_metric('net', 'accuracy', 0.8, repeat('x', 1048576))")
    with pytest.raises(errors.InvalidOption, match="k is 2147483647"):
        db.sql("SELECT * FROM mmdb.common_prefix('net', k => 2147483647)")


def test_a_metric_without_bounds_is_kept(db: Database) -> None:
    db.save("net", tensors(), metrics={"loss": math.inf, "accuracy": np.float64(0.5)})
    known = rows(db, "SELECT metric, value FROM mmdb.metric_overview ORDER BY metric")
    assert known == [("accuracy", 0.5), ("loss", math.inf)]


def test_a_note_is_written_down(saved: Database) -> None:
    assert rows(saved, "SELECT mmdb.note_model('net@2', 'überzeugt 🙂')") == [("net@2",)]
    assert rows(saved, "SELECT version, note FROM mmdb.note_overview") == [(2, "überzeugt 🙂")]


def test_what_says_nothing_is_refused(saved: Database) -> None:
    connection = saved.connection
    with pytest.raises(errors.InvalidOption, match="empty"):
        registry.note_model(connection, "net", " ")
    with pytest.raises(errors.InvalidOption, match="nan"):
        registry.log_metric(connection, "net", "loss", math.nan)
    with pytest.raises(errors.InvalidOption, match="nan"):
        saved.save("net", tensors(), metrics={"loss": math.nan})
    with pytest.raises(errors.InvalidName):
        saved.save("net", tensors(), metrics={"": 1.0})
    with pytest.raises(errors.InvalidName):
        registry.tag_model(connection, "net", "", "x")
    with pytest.raises(errors.ModelNotFound):
        registry.tag_model(connection, "nothing", "key", "x")


# -- differences --------------------------------------------------------------


def test_the_difference_of_two_models(db: Database) -> None:
    old = tensors()
    new = tensors()
    del new["body.bias"]
    new["head.weight"] = old["head.weight"].clone()
    new["head.weight"][0, :2] += torch.tensor([3.0, -4.0])
    new["head.bias"] = torch.zeros(41)
    new["extra"] = torch.zeros(2, dtype=torch.int64)
    save_model(db.connection, "a", old)
    save_model(db.connection, "b", new, parent="a")
    found = db.sql("SELECT path, change, dtype, shape, l2, max_abs FROM mmdb.model_diff('a', 'b')")
    assert [(r["path"], r["change"], r["dtype"], list(r["shape"])) for r in found] == [
        ("head.weight", "changed", "float32", [40, 64]),
        ("head.bias", "changed", "float32", [41]),
        ("extra", "added", "int64", [2]),
        ("body.bias", "removed", "float32", [64]),
    ]
    assert (found[0]["l2"], found[0]["max_abs"]) == pytest.approx((5.0, 4.0), abs=1e-5)
    assert all(row["l2"] is None and row["max_abs"] is None for row in found[1:])


def test_numbers_that_are_none_or_infinite_stay_what_they_are(db: Database) -> None:
    values = [1.0, math.nan, math.inf, -math.inf]
    save_model(db.connection, "a", {"w": torch.tensor(values), "s": torch.tensor(math.nan)})
    save_model(db.connection, "a", {"w": torch.zeros(4), "s": torch.tensor(math.inf)})
    (found,) = db.sql(
        "SELECT mmdb.tensor_values('a@1', 'w') AS w, mmdb.tensor_values('a@1', 's') AS s"
    )
    assert str(found) == str({"w": values, "s": [math.nan]})
    differences = db.sql("SELECT path, l2, max_abs FROM mmdb.model_diff('a@1', 'a@2')")
    assert {row["path"]: str(row["max_abs"]) for row in differences} == {"w": "nan", "s": "nan"}
    assert all(math.isnan(row["l2"]) for row in differences)


def test_norms_can_be_left_out(saved: Database) -> None:
    found = saved.sql("SELECT l2 FROM mmdb.model_diff('net@1', 'net@2', norms => false)")
    assert [row["l2"] for row in found] == [None] * 4


def test_a_model_does_not_differ_from_itself(saved: Database) -> None:
    save_model(saved.connection, "other", tensors(2))
    assert model_diff(saved.connection, "net", "other") == []


def test_a_model_kept_as_a_recipe_has_no_tensors_to_compare(saved: Database) -> None:
    saved.sql("UPDATE mmdb.model SET approach = 'provenance', manifest_id = NULL WHERE version = 3")
    with pytest.raises(errors.NotReplayable, match="'net@3'"):
        model_diff(saved.connection, "net@1", "net@3")

    def recover(connection: Connection, model: SavedModel) -> Tensors:
        return tensors(model.version - 1)

    found = model_diff(saved.connection, "net@1", "net@3", recover=recover)
    assert found == model_diff_of_tensors(0, 2)


def model_diff_of_tensors(a: int, b: int) -> list[TensorDifference]:
    """Return what changes between the models of two seeds, from copies that are kept whole."""
    with connect("duckdb://") as db:
        for name, seed in (("a", a), ("b", b)):
            save_model(db.connection, name, tensors(seed))
        return model_diff(db.connection, "a", "b")


# -- overviews ----------------------------------------------------------------


def test_the_overview_shows_models_without_a_run(saved: Database) -> None:
    save_model(saved.connection, "net", tensors(1), parent="net@2")
    query = "SELECT version, approach, parent, tensors, run FROM mmdb.model_overview ORDER BY 1"
    assert rows(saved, query) == [
        (1, "snapshot", None, 4, None),
        (2, "snapshot", None, 4, None),
        (3, "snapshot", None, 4, None),
        (4, "update", "net@2", 4, None),
    ]
    assert rows(saved, "SELECT parent FROM mmdb.model_lineage WHERE version = 4") == [("net@2",)]


def test_the_storage_of_a_model_is_shown_by_path(saved: Database) -> None:
    query = (
        "SELECT path, byte_count, chunks, stored_bytes IS NULL AS is_packed,"
        " minimum <= mean AND mean <= maximum AS is_between"
        " FROM mmdb.tensor_storage WHERE model = 'net' AND version = 1 ORDER BY ordinal"
    )
    assert rows(saved, query) == [
        ("body.weight", 16384, 1, False, True),
        ("body.bias", 256, None, True, True),
        ("head.weight", 10240, 1, False, True),
        ("head.bias", 160, None, True, True),
    ]


# -- dropping -----------------------------------------------------------------


def test_a_dropped_model_is_not_found_and_leaves_its_lineage(saved: Database) -> None:
    registry.tag_model(saved.connection, "net@2", "task", "vision")
    (row,) = saved.sql("SELECT name, version, bytes FROM mmdb.drop_model('net', 2)")
    assert (row["name"], row["version"]) == ("net", 2)
    assert row["bytes"] > 0
    with pytest.raises(errors.ModelNotFound):
        find_model(saved.connection, "net@2")
    query = "SELECT version FROM mmdb.model_overview WHERE dropped_at IS NOT NULL"
    assert rows(saved, query) == [(2,)]
    assert rows(saved, "SELECT version FROM mmdb.tag_overview") == []


def test_the_number_of_a_dropped_version_is_not_used_again(saved: Database) -> None:
    registry.drop_model(saved.connection, "net@3")
    assert find_model(saved.connection, "net").version == 2
    assert save_model(saved.connection, "net", tensors(5)).version == 4


def test_what_several_versions_share_is_not_counted_as_freed(db: Database) -> None:
    for _ in range(2):
        save_model(db.connection, "net", tensors())
    assert registry.drop_model(db.connection, "net", 1).bytes == 0
    stored = rows(db, "SELECT cast(sum(stored_bytes) AS bigint) AS bytes FROM mmdb.encoding")
    assert stored == [(registry.drop_model(db.connection, "net", 2).bytes,)]


def test_an_alias_pins_its_version(saved: Database) -> None:
    registry.set_alias(saved.connection, "net", 2, "prod")
    with pytest.raises(errors.ModelInUse, match="pinned by alias 'prod'") as caught:
        saved.sql("SELECT * FROM mmdb.drop_model('net', 2)")
    assert "drop_alias" in caught.value.hint
    assert find_model(saved.connection, "net@2").version == 2
    registry.set_alias(saved.connection, "net", 3, "prod")
    assert registry.drop_model(saved.connection, "net", 2).version == 2


def test_a_recipe_pins_the_model_it_begins_with(saved: Database) -> None:
    child = save_model(saved.connection, "child", tensors(7), parent="net@1")
    saved.sql(f"UPDATE mmdb.model SET approach = 'provenance' WHERE model_id = {child.model_id}")
    with pytest.raises(errors.ModelInUse, match="'child@1'"):
        registry.drop_model(saved.connection, "net", 1)
    registry.drop_model(saved.connection, "child")
    assert registry.drop_model(saved.connection, "net", 1).version == 1


def test_dropping_a_name_with_several_versions_asks_which(saved: Database) -> None:
    with pytest.raises(errors.InvalidOption, match="3 versions") as caught:
        registry.drop_model(saved.connection, "net")
    assert "'net@3'" in caught.value.hint
    with pytest.raises(errors.ModelNotFound):
        registry.drop_model(saved.connection, "net", 9)


def test_a_model_is_dropped_once(saved: Database) -> None:
    registry.drop_model(saved.connection, "net", 1)
    with pytest.raises(errors.ModelNotFound):
        registry.drop_model(saved.connection, "net", 1)


def test_an_alias_set_while_its_model_is_dropped_keeps_it_or_fails(postgres_url: str) -> None:
    with connect(postgres_url) as first, connect(postgres_url) as second:
        save_model(first.connection, "net", tensors())
        with ThreadPoolExecutor(1) as pool:
            with first.connection.transaction():
                registry.drop_model(first.connection, "net")
                moving = pool.submit(registry.set_alias, second.connection, "net", 1, "prod")
                wait_for_lock(postgres_url)
            with pytest.raises(errors.ModelNotFound):
                moving.result()
        save_model(first.connection, "net", tensors())
        with ThreadPoolExecutor(1) as pool:
            with first.connection.transaction():
                registry.set_alias(first.connection, "net", 2, "prod")
                dropping = pool.submit(registry.drop_model, second.connection, "net", 2)
                wait_for_lock(postgres_url)
            with pytest.raises(errors.ModelInUse):
                dropping.result()
        assert find_model(first.connection, "net@prod").version == 2


def wait_for_lock(url: str) -> None:
    """Return once a session waits for another one's lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        while not connection.execute(waiting).fetchall():
            pass


# -- rights -------------------------------------------------------------------


def test_nobody_can_say_who_moved_an_alias(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET ROLE mmdb_trainer")
        for statement in (
            "INSERT INTO mmdb.alias_event (model, alias, version, author)"
            " VALUES ('net', 'prod', 1, 'ann')",
            "DELETE FROM mmdb.alias_event",
            "UPDATE mmdb.alias_event SET version = 2",
            "DELETE FROM mmdb.tensor",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
