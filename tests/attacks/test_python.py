"""Text of ill will in the text arguments of Python's calls, on the engine of one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import mmdb
from mmdb.api import Database
from tests.attacks.test_injection import TEXTS

QUERY = "SELECT i AS id, i / 2.0 AS a, i % 2 AS y FROM range(20) AS t(i)"
CALLS: dict[str, Callable[[Database, str], Any]] = {
    "connect's url": lambda db, t: mmdb.connect(f"mysql://{t}"),
    "connect's file": lambda db, t: mmdb.connect(f"duckdb:////proc/{t}/x"),
    "a dataset's name": lambda db, t: db.create_dataset(f"{t} ", QUERY),
    "a dataset's query": lambda db, t: db.create_dataset("new", t),
    "a dataset's label": lambda db, t: db.create_dataset("new", QUERY, label=t),
    "a dataset's option": lambda db, t: db.create_dataset("new", QUERY, options={t: t}),
    "the dataset to drop": lambda db, t: db.drop_dataset(t),
    "the run to drop": lambda db, t: db.drop_run(t),
    "a run's name": lambda db, t: db.create_run(f"{t} ", dataset="d", architecture="linear"),
    "a run's dataset": lambda db, t: db.create_run("new", dataset=t, architecture="linear"),
    "an architecture": lambda db, t: db.create_run("new", dataset="d", architecture=t),
    "a search": lambda db, t: db.create_run(
        "new", dataset="d", architecture="linear", search={"method": t}
    ),
    "a dimension": lambda db, t: db.create_run(
        "new", dataset="d", architecture="linear", search={"space": {t: [1]}}
    ),
    "a strategy": lambda db, t: db.create_run(
        "new", dataset="d", architecture="linear", strategy=t
    ),
    "a parent to start from": lambda db, t: db.create_run(
        "new", dataset="d", architecture="linear", warm_start=t
    ),
    "a run": lambda db, t: db.run(t).train(workers=1),
    "a factory's name": lambda db, t: db.register_factory(f"{t} ", "torch.nn:Linear"),
    "a factory's target": lambda db, t: db.register_factory("new", t),
    "a function's kind": lambda db, t: db.register_function("new", "torch.nn:Linear", t),
    "a model's name": lambda db, t: db.save(f"{t} ", nn.Linear(2, 2)),
    "a model's parent": lambda db, t: db.save("new", nn.Linear(2, 2), parent=t),
    "a model's approach": lambda db, t: db.save("new", nn.Linear(2, 2), approach=t),
    "a model to recover": lambda db, t: db.recover(t),
    "a device": lambda db, t: db.recover("m", device=t),
    "a tensor's path": lambda db, t: db.tensor("m", t),
    "an alias": lambda db, t: db.set_alias("m", f"{t} "),
    "an alias to drop": lambda db, t: db.drop_alias("m", t),
    "models to compare": lambda db, t: db.diff("m", t),
    "a model to drop": lambda db, t: db.drop_model(t),
    "a grace": lambda db, t: db.gc(grace=t),
    "an entity": lambda db, t: db.lineage(t),
    "a direction": lambda db, t: db.lineage("model:m@1", t),
    "a key": lambda db, t: db.predict_query("m", QUERY, key=t),
    "a target": lambda db, t: db.predict_into("m", QUERY, t),
    "a dataset to evaluate": lambda db, t: db.evaluate("m", t),
    "a probe": lambda db, t: db.find_probe(t),
    "a model's card": lambda db, t: db.model_card(t),
    "a view to export": lambda db, t: db.export_parquet("/nowhere/at/all", [t]),
    "a format": lambda db, t: db.export_model("m", "/nowhere/at/all", format=t),  # type: ignore[arg-type]
    "where to push": lambda db, t: db.push("m", to=t),
    "where to pull from": lambda db, t: db.pull("m", from_=t),
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, installed_file: Path) -> Iterator[Database]:
    """Yield a zoo with a dataset and a model."""
    file = tmp_path_factory.mktemp("python") / "zoo.duckdb"
    file.write_bytes(installed_file.read_bytes())
    with mmdb.connect(f"duckdb:///{file}") as opened:
        opened.create_dataset("d", QUERY, partitions=1)
        opened.save("m", nn.Linear(2, 2))
        yield opened


def contents(db: Database) -> list[Any]:
    """Return every table with its rows' number."""
    found = db.sql(
        "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables "
        "WHERE table_type = 'BASE TABLE' ORDER BY 1"
    )
    names = [row["name"] for row in found]
    return [(name, db.sql(f"SELECT count(*) AS n FROM {name}")[0]["n"]) for name in names]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_text_is_refused_by_name(
    db: Database, tmp_path: Path, call: Callable[[Database, str], Any]
) -> None:
    before = contents(db)
    for payload in TEXTS:
        text = payload.replace("{canary}", str(tmp_path / "canary"))
        with pytest.raises(mmdb.MmdbError) as raised:
            call(db, text)
        # What is no interval, the engine says best.
        known = raised.value.sqlstate != "MM408" or "INTERVAL" in raised.value.message
        assert known, f"{text!r}: {raised.value}"
    assert contents(db) == before
    assert not (tmp_path / "canary").exists()
