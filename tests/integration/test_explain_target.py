"""Plans of as many epochs as it takes to reach a metric, by what earlier runs took."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mmdb
from mmdb.api import Database, Run
from mmdb.errors import InvalidOption

QUERY = "SELECT i * 0.01 AS a, i % 7 AS b, i % 3 AS y FROM generate_series(1, 600) AS g (i)"
PARTS, CANDIDATES = 3, 2


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    with mmdb.connect(database_url) as opened:
        opened.create_dataset("points", QUERY, partitions=PARTS, validation=0.2)
        yield opened


def create(db: Database, name: str, strategy: str = "mop", dataset: str = "points") -> Run:
    return db.create_run(
        name,
        dataset=dataset,
        architecture="mlp(hidden=[8])",
        search={"space": {"lr": [0.1, 0.01]}},
        epochs=3,
        strategy=strategy,
    )


def test_each_way_takes_the_epochs_that_runs_trained_so_have_taken(db: Database) -> None:
    create(db, "hopped").train()
    create(db, "averaged", "model_average").train()
    planned = create(db, "planned")
    # Any accuracy is reached in the first epoch.
    plan = planned.explain({"target": 0.0})
    assert plan.notes[-1].endswith("model_average 1 (of 1 runs), mop 1 (of 1 runs).")
    possible = {row["strategy"] for row in plan.estimates if row["feasible"]}
    assert possible == {"mop", "task", "model_average", "partitioned", "pipeline"} & possible
    assert possible >= {"mop", "task", "model_average"}
    assert plan.chosen is None  # the run trains for its own epochs
    whole = planned.explain({"strategies": ["mop"], "workers": 1}).estimates[0]
    (first,) = planned.explain({"strategies": ["mop"], "workers": 1, "target": 0.0}).estimates
    assert first["lower_bound"] < whole["lower_bound"] / 2
    others = [row for row in plan.estimates if row["strategy"] == "data_parallel"]
    assert all("no run of these models was trained so" in row["why_not"] for row in others)


def test_what_was_never_reached_is_not_possible(db: Database) -> None:
    run = create(db, "hopped")
    run.train()
    plan = run.explain({"target": 1.5, "strategies": ["mop"]})
    assert {row["why_not"] for row in plan.estimates} == {
        "accuracy was 1.5 in 0 of 1 runs trained so"
    }


def test_a_target_needs_something_held_out(db: Database) -> None:
    db.create_dataset("all_trained", QUERY, partitions=2, validation=0.0)
    run = create(db, "blind", dataset="all_trained")
    with pytest.raises(InvalidOption, match="holds nothing out"):
        run.explain({"target": 0.5})
    for bad in ("high", True, [0.5], 10**400):
        with pytest.raises(InvalidOption, match="target is"):
            run.explain({"target": bad})
