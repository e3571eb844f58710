"""Wrong, odd and damaged things given to warm starts and the zoo: a clear answer, and no trace."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.api import Database, connect
from mmdb.errors import ArchitectureError, InvalidOption, MmdbError
from tests.cluster import Cluster
from tests.run_rows import Writer, add_run, ids, insert

ROWS = "SELECT i / 1.0 AS a, i / 2.0 AS b, i % 2 AS y FROM generate_series(1, 40) AS g(i)"


def net() -> nn.Module:
    """Return a module that reads the rows of dataset `d`."""
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


def fill(db: Database) -> None:
    """Make dataset `d`, of two columns and two classes, and the model `good`."""
    db.sql(f"CREATE TABLE points AS {ROWS}")
    db.create_dataset("d", "SELECT a, b, y FROM points", label="y")
    save(db, "good", net(), 0.9)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield a database with `d` and `good`."""
    with connect(database_url) as opened:
        fill(opened)
        yield opened


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def untouched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """Yield one like it for all tests that change nothing."""
    if request.param == "duckdb":
        with connect(f"duckdb:///{tmp_path_factory.mktemp('untouched') / 'mmdb.duckdb'}") as opened:
            fill(opened)
            yield opened
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    name = "mmdb_warm_attacks"
    with connect(cluster.create_database(name, request.getfixturevalue("template"))) as opened:
        fill(opened)
        yield opened
    cluster.drop_database(name)


def save(db: Database, name: str, module: nn.Module, accuracy: float) -> None:
    db.save(name, module, dataset="d", metrics={"accuracy": accuracy})


def bad(module: nn.Module, value: float = math.nan) -> nn.Module:
    """Return a module with a value that no parameter should have."""
    with torch.no_grad():
        next(module.parameters()).view(-1)[0] = value
    return module


def refused(call: Callable[[], object]) -> MmdbError:
    """Return the error of a call that must fail, and say what to do."""
    with pytest.raises((ArchitectureError, InvalidOption)) as caught:
        call()
    assert caught.value.hint
    return caught.value


def events(db: Database) -> list[Mapping[str, Any]]:
    return db.sql("SELECT event FROM mmdb.zoo_decisions")


# -- modules that cannot be begun ---------------------------------------------------


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(2))


def scripted() -> nn.Module:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        module: nn.Module = torch.jit.script(net())
    return module


def without_memory() -> nn.Module:
    with torch.device("meta"):
        return net()


def expanded() -> nn.Module:
    module = net()
    first = next(one for one in module.modules() if isinstance(one, nn.Linear))
    first.weight = nn.Parameter(torch.zeros(1).expand(8, 2))
    return module


class Failing(nn.Module):
    """Fails in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: "mlp", "'mlp'"),
        (lambda: None, "NULL"),
        (lambda: nn.Linear, "Linear"),
        (lazy, "no shape yet"),
        (scripted, "TorchScript"),
        (without_memory, "meta device"),
        (expanded, "share their memory"),
        (Failing, "the disk is gone"),
    ],
)
def test_a_module_that_cannot_be_begun_is_named_and_left_alone(
    untouched: Database, make: Callable[[], Any], says: str
) -> None:
    module = make()
    assert says in refused(lambda: untouched.warm_start(module, "good", dataset="d")).message
    assert not events(untouched)


def test_a_lazy_module_has_no_match(untouched: Database) -> None:
    assert "no shape yet" in refused(lambda: untouched.match(lazy())).message


@pytest.mark.parametrize(
    "given",
    [
        {"threshold": "0.5"},
        {"coverage": math.nan},
        {"shrink": 0},
        {"seed": 1.5},
        {"metric": 5},
        {"metric": ""},
        {"inputs": 5},
        {"inputs": "abc"},
        {"inputs": {1: torch.zeros(2, 2)}},
    ],
)
def test_an_argument_of_warm_start_that_makes_no_sense(
    untouched: Database, given: dict[str, Any]
) -> None:
    error = refused(lambda: untouched.warm_start(net(), dataset="d", **given))
    assert error.message.startswith(next(iter(given)))


@pytest.mark.parametrize(
    "given",
    [
        {"k": None},
        {"sample": -1},
        {"metric": 5},
        {"input_shape": 5},
        {"input_shape": "64"},
        {"input_shape": [3, "a"]},
        {"input_shape": [-1]},
        {"outputs": "x"},
        {"outputs": 0},
    ],
)
def test_an_argument_of_match_that_makes_no_sense(
    untouched: Database, given: dict[str, Any]
) -> None:
    error = refused(lambda: untouched.match("mlp(hidden=[8])", **given))
    assert error.message.startswith(next(iter(given)))


# -- parents -------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_model_with_parameters_that_are_no_numbers_stands_in_for_none(
    db: Database, value: float
) -> None:
    save(db, "broken", bad(net(), value), 0.905)
    decided = {one.model: (one.event, one.reason) for one in db.manage_zoo()}
    assert decided["good@1"] == ("admitted", "no rule speaks against it")
    assert decided["broken@1"] == ("refused", "its parameters are not all finite numbers")
    db.zoo_admit("broken")
    assert {one.model: one.event for one in db.manage_zoo()} == {"good@1": "admitted"}
    found = db.warm_start(net(), "broken", dataset="d")
    assert found.parent is None
    assert found.reason == "broken@1 does not fit: its parameters are not all finite numbers."


def test_a_model_with_an_infinite_metric_is_no_parent(db: Database) -> None:
    for name in ("a", "b", "c"):
        db.save(name, net(), dataset="d")
        db.log_metric(name, "accuracy", math.inf)
    choice = db.match(net(), dataset="d", metric="accuracy")
    assert choice.parent is not None and choice.parent.model == "good@1"
    assert {one.reason for one in choice.candidates[1:]} == {
        "its accuracy is inf, which is no finite number"
    }
    events_of = {one.model: one.event for one in db.manage_zoo()}
    assert events_of == {"good@1": "admitted"} | dict.fromkeys(("a@1", "b@1", "c@1"), "refused")


def test_a_metric_that_no_model_has_is_said_to_be_unknown(untouched: Database) -> None:
    choice = untouched.match(net(), dataset="d", metric="acuracy")
    assert choice.reason.endswith("no acuracy is known")


def test_a_model_that_was_refused_and_asked_for_is_said_to_be_so(db: Database) -> None:
    db.zoo_refuse("good")
    found = db.warm_start(net(), "good", dataset="d")
    assert found.parent == "good@1"
    assert found.reason.startswith("asked for, and not in the zoo")


class Own(nn.Module):
    """A class that no layer graph tells how to build."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.first(x).relu()
        return self.last(hidden), hidden


def test_a_sample_passes_over_a_model_that_cannot_be_built(db: Database) -> None:
    save(db, "own", Own(), 0.95)
    choice = db.match(net(), dataset="d", sample=16)
    assert [one.model for one in choice.candidates] == ["good@1", "own@1"]
    assert "cannot be built" in choice.candidates[1].reason
    assert "LogME" in choice.reason


# -- what warm_start returned ---------------------------------------------------------


def test_what_another_database_found_is_no_edge_here(db: Database, tmp_path: Path) -> None:
    found = db.warm_start(net(), dataset="d")
    with connect(f"duckdb:///{tmp_path / 'other.duckdb'}") as other:
        with pytest.raises(InvalidOption, match="not a model of this database"):
            other.save("child", net(), warm=found)
        assert not other.sql("SELECT model FROM mmdb.model_overview")


@pytest.mark.parametrize("given", ["good@1", 5])
def test_what_warm_start_did_not_return_is_no_edge(untouched: Database, given: Any) -> None:
    refused(lambda: untouched.save("child", net(), warm=given))


def test_a_parent_may_be_dropped_before_its_child_is_saved(db: Database) -> None:
    module = net()
    found = db.warm_start(module, dataset="d")
    db.drop_model("good@1")
    db.save("child", module, warm=found)
    assert [row["parent"] for row in db.lineage("child") if row["via"] == "warm start"] == [
        "model:good@1"
    ]


# -- the zoo --------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [None, 5, "a\0b", "\ud800"])
def test_a_reason_is_a_text(untouched: Database, reason: Any) -> None:
    assert refused(lambda: untouched.zoo_refuse("good", reason)).message.startswith("reason is")
    assert not events(untouched)


@pytest.mark.parametrize("budget", [-1, 0.5, "0", True, math.nan])
def test_a_budget_is_a_whole_number(untouched: Database, budget: Any) -> None:
    refused(lambda: untouched.manage_zoo(budget, dry_run=False))
    assert not events(untouched)


@pytest.mark.parametrize("dry_run", [None, "no", 0])
def test_nothing_is_dropped_unless_dry_run_is_false(untouched: Database, dry_run: Any) -> None:
    refused(lambda: untouched.manage_zoo(0, dry_run=dry_run))
    assert [row["model"] for row in untouched.sql("SELECT model FROM mmdb.zoo")] == ["good"]
    if untouched.connection.engine == "postgres":
        refused(lambda: untouched.sql("SELECT * FROM mmdb.manage_zoo(0, NULL)"))
    assert not events(untouched)


# -- views ----------------------------------------------------------------------------


def test_each_warm_candidate_has_one_row_beside_the_cold_arm_of_its_direction(
    db: Database,
) -> None:
    dataset_id = ids(db, "dataset", "dataset_id")[0]
    values = {
        "up": (True, [[0.5, 0.7], [0.7, 0.1]]),
        "down": (False, [[0.4, 0.2]]),
        "warm up": (True, [[0.6, 0.8], [0.1, 0.2]]),
        "warm down": (False, [[0.1, 0.3]]),
    }
    for name, (maximize, curves) in values.items():
        columns = {"metric": "m", "maximize": maximize, "epochs": 2, "strategy": "mop"}
        add_run(db, name, dataset_id, **columns)
        writer = Writer(db, name)
        for curve in curves:
            candidate = writer.candidate({})
            for epoch, value in enumerate(curve):
                writer.epoch(candidate, epoch, value)
            if name.startswith("warm"):
                add_warm_start(db, writer.candidates[candidate])
    db.sql("UPDATE mmdb.candidate SET architecture_hash = 'a'::bytea")
    rows = db.sql(
        "SELECT run, rank, target, cold_steps, steps_to_target, steps_saved"
        " FROM mmdb.leaderboard ORDER BY run, rank"
    )
    steps = 2 * len(writer.parts)  # of an epoch, its validation too
    assert [tuple(row.values()) for row in rows] == [
        ("down", 1, None, None, None, None),
        ("up", 1, None, None, None, None),
        ("up", 2, None, None, None, None),
        ("warm down", 1, 0.2, 2 * steps, steps, steps),
        ("warm up", 1, 0.7, steps, 2 * steps, -steps),
        ("warm up", 2, 0.7, steps, None, None),
    ]
    alone = db.sql("SELECT target FROM mmdb.warm_start_overview WHERE run = 'warm down'")
    assert [row["target"] for row in alone] == [0.2]


def add_warm_start(db: Database, candidate_id: int) -> None:
    """Say that a candidate began with a parent's tensors."""
    columns = {"state_hash": b"0", "lr_scale": 1.0, "lr_epochs": 0, "reason": "", "match_s": 0.0}
    insert(db, "warm_start", candidate_id=candidate_id, **columns)
