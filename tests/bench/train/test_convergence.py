"""The bench of convergence on a small task: same bits as a plain loop, and a picture."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

import mmdb
from mmdb.bench.figures import Figure
from tests.bench.train import convergence


def small_task() -> convergence.Task:
    x, y = convergence.labelled_rows(1200, 8)
    return convergence.Task(name="small", x=x, y=y, hidden=(16,), batch_size=16, epochs=2)


def test_hopping_equals_sequential_sgd_and_a_changed_log_does_not(
    installed_duckdb_url: str, tmp_path: Path
) -> None:
    with mmdb.connect(installed_duckdb_url) as db:
        figures = list(convergence.measure(db, small_task()))
        assert not db.sql("SELECT 1 FROM mmdb.run")
        assert not db.sql("SELECT 1 FROM mmdb.decision")
        assert not db.sql("SELECT 1 FROM mmdb.merge")
    curves = {f.name.rpartition(": ")[2]: f.runs for f in figures if f.unit == convergence.UNIT}
    assert curves["mop"] == curves["sequential SGD"] != curves["model averaging"]
    assert len(curves["mop"]) == 2
    (equal,) = [figure for figure in figures if "equal" in figure.name]
    assert equal.holds
    convergence.plot(figures, str(tmp_path / "curves.svg"))
    assert (tmp_path / "curves.svg").read_text().count("<polyline") == 3


def test_a_plot_leaves_out_what_is_no_curve(tmp_path: Path) -> None:
    figures = [Figure(name="a: least gain", value=1.0, unit=convergence.UNIT)]
    convergence.plot(figures, str(tmp_path / "curves.svg"))
    assert "<polyline" not in (tmp_path / "curves.svg").read_text()


def test_the_order_of_visits_shows_in_the_error() -> None:
    task = dataclasses.replace(small_task(), epochs=1)
    x, y = torch.from_numpy(task.x), torch.from_numpy(task.y).long()
    parts = {k: convergence.Part(k, x[k::2], y[k::2]) for k in range(2)}
    losses = []
    for order in ((0, 1), (1, 0)):
        loop = convergence.SequentialSgd(task, 0)
        hops = [{"epoch": 0, "part_id": k} for k in order]
        list(loop.run(hops, parts, parts[0]))
        losses.append(loop.module(x).logsumexp(1).sum().item())
    assert losses[0] != losses[1]
