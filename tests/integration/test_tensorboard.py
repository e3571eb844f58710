"""Exported runs as TensorBoard's own reader sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.standards.tensorboard_export import export_tensorboard, learning_rates
from tests.run_rows import START, Writer, add_run, ids, insert


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield a database with the run "search": a finished, a failed, an idle candidate, a clone."""
    with mmdb.connect(database_url) as opened:
        query = "SELECT i * 1.0 AS a, i * 2.5 AS y FROM generate_series(1, 40) AS g (i)"
        opened.create_dataset("d", query, partitions=2)
        (dataset_id,) = ids(opened, "dataset", "dataset_id")
        options = {"metric": "rmse", "maximize": False, "epochs": 3, "strategy": "mop"}
        add_run(opened, "search", dataset_id, **options)
        writer = Writer(opened, "search")
        halving = {"name": "step", "step_size": 1, "gamma": 0.5}
        sgd = {"name": "sgd", "momentum": 0.9}
        for lr in (0.4, 0.2, 0.1):
            writer.candidate({"lr": lr, "optimizer": sgd, "schedule": halving})
        writer.candidate({"lr": 0.8, "optimizer": "adam", "schedule": halving}, parent=0)
        for epoch, value in enumerate((3.0, 1.0, 2.0)):
            writer.epoch(0, epoch, value)
        writer.epoch(1, 0, float("nan"))
        insert(opened, "candidate_event", candidate_id=writer.candidates[1], event="failed")
        writer.epoch(3, 0, 0.5)
        writer.decide(("start", 3, 3))
        yield opened


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def curve(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(tag)]


def hparams(events: EventAccumulator, tag: str) -> Any:
    content = events.SummaryMetadata(f"_hparams_/{tag}").plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


def test_tensorboard_reads_what_was_exported(db: Database, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "search"
    assert export_tensorboard(db.connection, "search", folder) == 3  # one has not begun
    first, second, _, clone = ids(db, "candidate", "candidate_id")
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {
        f"candidate-{n}" for n in (first, second, clone)
    }
    events = read(folder / f"candidate-{first}")
    assert curve(events, "loss/train") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert curve(events, "metrics/rmse") == [(1, 3.0), (2, 1.0), (3, 2.0)]
    assert curve(events, "best/rmse") == [(1, 3.0), (2, 1.0), (3, 1.0)]
    assert dict(curve(events, "lr")) == pytest.approx({1: 0.4, 2: 0.2, 3: 0.1})
    assert curve(events, "seconds/total") == [(1, 2.0), (2, 2.0), (3, 2.0)]
    assert events.Scalars("lr")[0].wall_time == START.timestamp() + 3
    branched = read(folder / f"candidate-{clone}")
    assert dict(curve(branched, "lr")) == pytest.approx({1: 0.4})  # a parent's epoch is behind it


def test_the_table_of_hyper_parameters(db: Database, tmp_path: Path) -> None:
    export_tensorboard(db.connection, "search", tmp_path)
    first, second, _, clone = ids(db, "candidate", "candidate_id")
    experiment = hparams(read(tmp_path), "experiment").experiment
    assert experiment.name == "search"
    assert {info.name: info.type for info in experiment.hparam_infos} == {
        "lr": 3,
        "optimizer": 1,
        "optimizer.momentum": 3,
        "schedule": 1,
        "schedule.step_size": 3,
        "schedule.gamma": 3,
    }
    optimizers = next(i for i in experiment.hparam_infos if i.name == "optimizer")
    assert [v.string_value for v in optimizers.domain_discrete.values] == ["sgd", "adam"]
    metrics = [info.name.tag for info in experiment.metric_infos]
    assert metrics == ["best/rmse", "metrics/rmse", "loss/train", "loss/validation"]
    events = read(tmp_path / f"candidate-{first}")
    start = hparams(events, "session_start_info").session_start_info
    assert start.group_name == f"candidate {first}"
    assert start.hparams["lr"].number_value == 0.4
    assert start.hparams["optimizer"].string_value == "sgd"
    ends = {
        n: hparams(read(tmp_path / f"candidate-{n}"), "session_end_info").session_end_info.status
        for n in (first, second, clone)
    }
    assert ends == {first: 1, second: 2, clone: 3}  # success, failure, running


def test_an_export_is_brought_up_to_date_and_is_the_same_for_the_same_rows(
    db: Database, tmp_path: Path
) -> None:
    def contents() -> dict[str, bytes]:
        export_tensorboard(db.connection, "search", tmp_path / "logs")
        files = (path for path in (tmp_path / "logs").rglob("*") if path.is_file())
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in files}

    before = contents()
    assert contents() == before and len(before) == 4
    writer = Writer(db, "search")
    writer.candidates, writer.seconds = ids(db, "candidate", "candidate_id"), 100
    writer.epoch(2, 0, 0.25)
    after = contents()
    assert (
        len(after) == 5
        and after.items() >= {k: before[k] for k in before if "candidate" in k}.items()
    )


def test_what_cannot_be_exported(db: Database, tmp_path: Path) -> None:
    with pytest.raises(errors.RunNotFound):
        export_tensorboard(db.connection, "absent", tmp_path)
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(errors.FileError):
            export_tensorboard(db.connection, "search", folder)


@pytest.mark.parametrize(
    ("schedule", "steps", "before", "rates"),
    [
        (None, [4, 4], [], [0.8, 0.8]),
        ({"name": "step", "step_size": 2, "gamma": 0.5}, [4, 4, 4], [], [0.8, 0.8, 0.4]),
        ({"name": "step", "step_size": 2, "gamma": 0.5}, [4], [4, 4], [0.4]),
        ({"name": "exponential", "gamma": 0.5, "per": "step"}, [2, 1, 5], [], [0.8, 0.2, 0.1]),
        ({"name": "one_cycle", "max_lr": 1.0, "total_steps": 10, "per": "step"}, [2], [], [0.04]),
    ],
)
def test_learning_rates_are_those_of_the_schedule(
    schedule: dict[str, Any] | None, steps: list[int], before: list[int], rates: list[float]
) -> None:
    config = {"lr": 0.8, "optimizer": "adam", "loss": "huber", "schedule": schedule}
    assert learning_rates(config, steps, before) == pytest.approx(rates)
