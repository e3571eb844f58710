"""Runs that freeze layers: shared features, equal bits whatever the choice, budgets, recovery."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import mmdb
from mmdb.api import Database
from mmdb.errors import (
    BackboneMismatch,
    BackboneMissing,
    CutNotFound,
    HeadMismatch,
    InvalidHyperparameter,
    InvalidOption,
    MmdbError,
)
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import initial_module
from tests.cluster import Cluster
from tests.integration.test_strategies import train_all

NETWORK = "mlp(hidden=[24, 16, 12])"
#: Two cuts, two heads: four candidates.
SPACE = {
    "freeze_up_to": ["1", "3"],
    "head": ["linear", {"name": "mlp", "hidden": [8]}],
    "lr": 0.05,
}
CHOICES = ("stored", "memory", "recomputed", "streamed")
#: Bytes: none, less than all features, room in one place, room for all.
BUDGETS = [
    {"disk_bytes": disk, "memory_bytes": memory}
    for disk, memory in ((0, 0), (6_000, 0), (0, 40_000), (40_000, 40_000))
]
ROOM_BYTES = 300 * 16 * 4  # of the smaller features
SMALL = "mlp(hidden=[8])"
#: So that a table's row is what models read.
AS_THEY_ARE = {"transforms": {"*": "passthrough"}}


#: Runs that are trained together: what they ask for beside SPACE and model `base`.
RUNS: dict[str, dict[str, Any]] = {
    **{f"as_{c}": {"options": {"order": "fixed"}, "features": {"choice": c}} for c in CHOICES},
    "lossy_float16": {"features": {"choice": "stored", "storage": "float16"}, "epochs": 1},
    "lossy_int8": {"features": {"choice": "stored", "storage": "int8"}, "epochs": 1},
    "rest": {"search": {"space": {"freeze_up_to": ["1", "3"], "lr": 0.05}}},
    "adapted": {
        "search": {"space": {"freeze_up_to": "1", "adapter": {"name": "lora", "rank": 2}}},
    },
    "learning": {"search": {"space": {"freeze_up_to": "1", "batch_norm": "train"}}},
    "noisy": {
        "search": {
            "space": {"freeze_up_to": "1", "head": "linear", "augment": [[], {"name": "jitter"}]}
        }
    },
    "drawn": {"warm_start": "off", "search": {"space": {"freeze_up_to": "1", "lr": 0.05}}},
    "misfit": {"warm_start": "small"},
    "orphan": {"warm_start": "gone", "search": {"space": {"freeze_up_to": "1"}}},
    **{
        f"budget_{k}": {"dataset": f"d{k}", "features": BUDGETS[k], "epochs": 1}
        for k in range(len(BUDGETS))
    },
}


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """Return a database with datasets, and the models that runs freeze."""
    folder = tmp_path_factory.mktemp("features")
    url, name = f"duckdb:///{folder}/mmdb.duckdb", "mmdb_features"
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database(name, request.getfixturevalue("template"))
    with mmdb.connect(url) as database:
        fill(database)
        yield database
    if request.param == "postgres":
        cluster.drop_database(name)


def fill(db: Database) -> None:
    """Make a table, datasets of it, and models of networks that fit and do not."""
    db.sql(
        "CREATE TABLE points AS SELECT ((i * 7) % 13 - 6)::real / 6 AS a, "
        "((i * 5) % 11 - 5)::real / 5 AS b, ((i * 3) % 7 - 3)::real / 3 AS c, "
        "(i % 3)::integer AS y FROM generate_series(1, 300) AS g (i)"
    )
    for seed, name in enumerate(["d", *(f"d{k}" for k in range(len(BUDGETS)))]):
        db.create_dataset(
            name, "SELECT a, b, c, y FROM points", partitions=2, seed=seed, options=AS_THEY_ARE
        )
    db.create_dataset(
        "all", "SELECT a, b, c, y FROM points", partitions=1, validation=0, options=AS_THEY_ARE
    )
    db.register_function("jitter", "tests.integration.candidate_code:jitter", "augmentation")
    for name, architecture in (("base", NETWORK), ("small", SMALL), ("gone", NETWORK)):
        module = initial_module(architecture, {}, (3,), 3, SHIPPED, seed=7)
        db.save(name, module)


@pytest.fixture(scope="module")
def outcomes(db: Database) -> dict[str, Any]:
    """Train RUNS; return what became of each."""
    for name, asked in RUNS.items():
        create(db, name, **asked)
    db.drop_model("gone", 1)
    return train_all(db, list(RUNS), workers=2)


def create(db: Database, name: str, **asked: Any) -> Any:
    """Create a run over the frozen layers of model `base`."""
    options = {"features": asked.pop("features", {}), "order": "free"} | asked.pop("options", {})
    given: dict[str, Any] = {"warm_start": "base", "search": {"space": SPACE}, "epochs": 2}
    given |= {"dataset": "d"} | asked
    return db.create_run(name, architecture=NETWORK, seed=2, options=options, **given)


def states(db: Database, run: str) -> list[tuple[Any, ...]]:
    """Return the state that each epoch of each candidate left, in order."""
    rows = db.sql(
        "SELECT c.ordinal, h.epoch, h.ordinal AS place, h.state_out FROM mmdb.hop AS h "
        "JOIN mmdb.candidate AS c ON c.candidate_id = h.candidate_id "
        f"JOIN mmdb.run AS r ON r.run_id = c.run_id WHERE r.name = '{run}' ORDER BY 1, 2, 3"
    )
    return [(r["ordinal"], r["epoch"], bytes(r["state_out"])) for r in rows]


def candidates(db: Database, run: str) -> list[int]:
    """Return the ids of a run's candidates, in order."""
    rows = db.sql(
        "SELECT c.candidate_id FROM mmdb.candidate AS c JOIN mmdb.run AS r "
        f"ON r.run_id = c.run_id WHERE r.name = '{run}' ORDER BY c.ordinal"
    )
    return [row["candidate_id"] for row in rows]


def features_of(db: Database, run: str) -> list[dict[str, Any]]:
    """Return how a run gets its features."""
    return [
        dict(row)
        for row in db.sql(
            "SELECT f.layer, u.choice, u.reason, u.candidates, u.byte_count, u.compute_s, "
            "u.store_s, u.read_s, f.feature_id, f.max_error FROM mmdb.run_feature AS u "
            "JOIN mmdb.run AS r ON r.run_id = u.run_id "
            "JOIN mmdb.feature AS f ON f.feature_id = u.feature_id "
            f"WHERE r.name = '{run}' ORDER BY f.layer"
        )
    ]


def stored_bytes(db: Database, dataset: str) -> int:
    """Return the bytes of a dataset's features in the database."""
    (row,) = db.sql(
        "SELECT coalesce(sum(octet_length(b.data)), 0) AS bytes FROM mmdb.feature_block AS b "
        "JOIN mmdb.feature AS f ON f.feature_id = b.feature_id JOIN mmdb.dataset AS d "
        f"ON d.dataset_id = f.dataset_id WHERE d.name = '{dataset}'"
    )
    return int(row["bytes"])


def test_every_choice_gives_the_same_bits(db: Database, outcomes: dict[str, Any]) -> None:
    assert [outcomes[f"as_{choice}"].failed for choice in CHOICES] == [0] * len(CHOICES)
    left = {choice: states(db, f"as_{choice}") for choice in CHOICES}
    for choice in CHOICES:
        rows = features_of(db, f"as_{choice}")
        assert [(r["layer"], r["candidates"], r["choice"]) for r in rows] == [
            ("1", 2, choice),
            ("3", 2, choice),
        ]
    assert left["stored"] == left["memory"] == left["recomputed"]
    assert len({state for *_, state in left["stored"]}) > 8
    apart = weights(db, "as_streamed")
    for path, tensor in weights(db, "as_stored").items():
        torch.testing.assert_close(tensor, apart[path], rtol=1e-5, atol=1e-6)


def weights(db: Database, run: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a run's first candidate."""
    saved = db.save_candidate(candidates(db, run)[0], f"{run}_first")
    return dict(db.recover(saved).state_dict())


def test_the_saved_model_is_whole_and_has_the_frozen_tensors(
    db: Database, outcomes: dict[str, Any]
) -> None:
    model, base = db.recover(outcomes["as_stored"].model), db.recover("base").state_dict()
    tensors = model.state_dict()
    frozen = {p.removeprefix("backbone."): t for p, t in tensors.items() if "backbone." in p}
    assert frozen and all(torch.equal(t, base[p]) for p, t in frozen.items())
    rows = torch.tensor([list(row.values()) for row in db.sql("SELECT a, b, c, y FROM points")])
    with torch.no_grad():
        right = (model.eval()(rows[:, :3]).argmax(1) == rows[:, 3]).double().mean()
    found = db.evaluate(outcomes["as_stored"].model, "all")
    assert found["accuracy"] == pytest.approx(float(right))
    assert len(db.predict(outcomes["as_stored"].model, [0.1, -0.2, 0.3])) == 3


@pytest.mark.parametrize("budget", range(len(BUDGETS)))
def test_budgets_are_kept(db: Database, outcomes: dict[str, Any], budget: int) -> None:
    given, rows = BUDGETS[budget], features_of(db, f"budget_{budget}")
    assert outcomes[f"budget_{budget}"].failed == 0
    stored = stored_bytes(db, f"d{budget}")
    kept = sum(row["byte_count"] for row in rows if row["choice"] == "memory")
    assert stored <= given["disk_bytes"] and kept <= given["memory_bytes"]
    if sum(given.values()) < ROOM_BYTES:
        assert {row["choice"] for row in rows} == {"streamed"}
        assert all("no room" in row["reason"] for row in rows)
    else:
        assert stored + kept >= ROOM_BYTES


def test_lossy_storage_says_how_lossy(db: Database, outcomes: dict[str, Any]) -> None:
    for storage, least, most in (("float16", 1e-4, 1e-3), ("int8", 1e-3, 1e-2)):
        rows = features_of(db, f"lossy_{storage}")
        assert [row["layer"] for row in rows] == ["1", "3"]
        assert all(least <= row["max_error"] <= most for row in rows)


def test_the_rest_of_the_network_and_adapters_train(db: Database, outcomes: dict[str, Any]) -> None:
    base = db.recover("base").state_dict()
    for run in ("rest", "adapted", "learning"):
        assert outcomes[run].failed == 0
        found = db.recover(outcomes[run].model).state_dict()
        assert base.keys() == found.keys()
        assert torch.equal(base["1.weight"], found["1.weight"])
        assert not torch.equal(base["5.weight"], found["5.weight"])
    assert {row["choice"] for row in features_of(db, "learning")} == {"whole"}


def test_rows_that_are_augmented_share_nothing(db: Database, outcomes: dict[str, Any]) -> None:
    assert outcomes["noisy"].failed == 0
    (row,) = features_of(db, "noisy")
    assert row["candidates"] == 2
    left: dict[int, set[bytes]] = {}
    for ordinal, _, state in states(db, "noisy"):
        left.setdefault(ordinal, set()).add(state)
    assert not left[0] & left[1]


def test_a_backbone_that_does_not_fit_or_is_gone(db: Database, outcomes: dict[str, Any]) -> None:
    assert isinstance(outcomes["misfit"], BackboneMismatch)
    assert isinstance(outcomes["orphan"], BackboneMissing)
    for name in ("misfit", "orphan"):
        assert outcomes[name].hint and not states(db, name)


def test_a_later_run_finds_what_was_stored_and_goes_on_where_it_is_gone(
    db: Database, outcomes: dict[str, Any]
) -> None:
    asked = RUNS["as_stored"]
    before = stored_bytes(db, "d")
    create(db, "later", **asked).train(workers=1)
    assert stored_bytes(db, "d") == before
    assert all(row["store_s"] == 0 for row in features_of(db, "later"))
    create(db, "broken", **asked)
    parts = [r["part_id"] for r in db.sql("SELECT part_id FROM mmdb.partition ORDER BY part_id")]
    for candidate in candidates(db, "broken")[:2]:
        assert any(trains(db, part_id, candidate) for part_id in parts)
    assert db.drop_features("d") == before and stored_bytes(db, "d") == 0
    db.run("broken").train(workers=1)
    assert states(db, "broken") == states(db, "later") == states(db, "as_stored")


def test_a_run_freezes_its_own_backbone_whoever_found_the_features_first(
    db: Database, outcomes: dict[str, Any]
) -> None:
    space = {"freeze_up_to": "1", "lr": 1e-9, "optimizer": "sgd"}
    run = create(db, "again", warm_start="drawn", search={"space": space}, epochs=1)
    summary = run.train(workers=1)
    assert [r["feature_id"] for r in features_of(db, "again")] == [
        r["feature_id"] for r in features_of(db, "drawn")
    ]
    first = db.recover(outcomes["drawn"].model).state_dict()
    found = db.recover(summary.model).state_dict()
    for path in ("1.weight", "1.bias"):
        assert torch.equal(found[path], first[path])
    torch.testing.assert_close(dict(found), dict(first), rtol=0, atol=1e-5)
    (row,) = db.sql("SELECT backbone FROM mmdb.run_features WHERE run = 'again'")
    assert row["backbone"] == "drawn@1"


def trains(db: Database, part_id: int, candidate_id: int) -> bool:
    """Return whether a candidate did its first hop on a partition."""
    try:
        db.sql(f"SELECT * FROM mmdb.train_hop({part_id}, {candidate_id}, 0)")
    except MmdbError:
        return False
    return True


def test_lineage_goes_through_features(db: Database, outcomes: dict[str, Any]) -> None:
    up = db.sql("SELECT * FROM mmdb.lineage('as_stored')")
    assert any("feature" in str(row["kind"]) for row in up)
    down = db.sql("SELECT * FROM mmdb.lineage('base', 'down')")
    assert any("as_stored" in str(row["child"]) for row in down)


def test_a_candidate_whose_frozen_layers_fail_ends_alone(db: Database) -> None:
    db.register_factory("crowded", "tests.broken:crowded")
    space = {"freeze_up_to": "0", "head": "linear", "architecture.rows": [2, 4096]}
    run = db.create_run(
        "crowded",
        dataset="d",
        architecture="crowded(spares_cpu=False)",
        search={"space": space | {"lr": 0.05}},
        epochs=1,
    )
    run.train(workers=1)
    found = {row["candidate_id"]: row["status"] for row in run.leaderboard()}
    assert [found[one] for one in candidates(db, "crowded")] == ["failed", "trained"]


# -- what is refused ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"search": {"space": {"freeze_up_to": "layer9", "head": "linear"}}}, CutNotFound),
        ({"search": {"space": {"freeze_up_to": 3}}}, InvalidHyperparameter),
        ({"search": {"space": {"head": "linear"}}}, InvalidHyperparameter),
        ({"search": {"space": {"freeze_up_to": "1", "head": "cnn"}}}, HeadMismatch),
        ({"search": {"space": {"freeze_up_to": "1", "head": "nothing"}}}, MmdbError),
        ({"search": {"space": {"freeze_up_to": "1", "pool": "mean"}}}, InvalidHyperparameter),
        ({"search": {"space": {"freeze_up_to": "1", "adapter": "lara"}}}, InvalidHyperparameter),
        ({"warm_start": "auto"}, InvalidOption),
        ({"strategy": "model_average"}, InvalidOption),
        ({"features": {"disk_bytes": -1}}, InvalidOption),
        ({"features": {"choice": "whole"}}, InvalidOption),
        ({"features": {"storage": "int4"}}, InvalidOption),
        ({"features": {"speed": 1}}, InvalidOption),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    db: Database, asked: dict[str, Any], error: type[MmdbError]
) -> None:
    with pytest.raises(error) as caught:
        create(db, "refused", **asked)
    assert caught.value.hint
    assert not db.sql("SELECT 1 FROM mmdb.run WHERE name = 'refused'")
