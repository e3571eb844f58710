"""Charts of plans and runs: rows in, a Vega-Lite specification out."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, get_args

import pytest

from mmdb.plan.cost import EXECUTED, StrategyName
from mmdb.report import hop_chart
from mmdb.report.hop_chart import BARS, OTHERS, timeline
from mmdb.report.line_charts import curves_of, learning, models_chart, tensors_chart, versions_chart
from mmdb.report.parts import STRATEGIES, Chart
from mmdb.report.plan_charts import NAMES, TOO_LONG, compared_phases, planned_phases, scaling
from mmdb.report.run_sections import spent
from tests.unit.report.rows import facts, hops_of, outcome_of, plan_rows

PLAN = plan_rows()


def made(chart: Chart | None) -> Chart:
    assert chart is not None
    json.dumps(chart.spec, allow_nan=False)  # a page holds it as JSON
    return chart


def values(chart: Chart, layer: int | None = None) -> list[dict[str, Any]]:
    place = chart.spec if layer is None else chart.spec["layer"][layer]
    return list(place["data"]["values"])


def test_every_strategy_has_a_look() -> None:
    assert set(STRATEGIES) == set(get_args(StrategyName))
    looks = [(color, tuple(dash), symbol) for color, dash, symbol in STRATEGIES.values()]
    assert len(set(looks)) == len(looks)
    for strategy, (_, dash, _) in STRATEGIES.items():
        assert bool(dash) == (strategy not in EXECUTED)
        assert NAMES[strategy].endswith("(what-if)") == (strategy not in EXECUTED)


def test_the_scaling_curve_has_the_best_of_each_strategy_at_each_number_of_workers() -> None:
    chart = made(scaling(PLAN))
    points = values(chart)
    counts = Counter((point["name"], point["workers"]) for point in points)
    assert set(counts.values()) == {1}
    for point in points:
        alike = [
            row["t_p50"]
            for row in PLAN
            if row["feasible"]
            and (NAMES[row["strategy"]], row["workers"]) == (point["name"], point["workers"])
        ]
        assert point["middle"] == min(alike)
        assert point["low"] <= point["middle"] <= point["high"]
    (ring,) = (row for row in PLAN if row["chosen"])
    assert values(chart, -1) == [{"workers": ring["workers"], "at": ring["t_p50"]}]
    assert "Train does the following: mop with 4 workers" in chart.alt


def test_once_trained_the_time_that_it_took_is_marked() -> None:
    chart = made(scaling(PLAN, (4, 12.5)))
    assert values(chart, -1)[0]["at"] == 12.5
    assert "It took 12.5 s with 4 workers" in chart.alt and "cross" in chart.note


def test_where_nothing_is_possible_nothing_is_drawn() -> None:
    rows = [row | {"feasible": False, "why_not": "memory"} for row in PLAN]
    assert scaling(rows) is None and planned_phases(rows) is None
    assert scaling([]) is None and planned_phases([]) is None


def test_one_way_alone_can_be_drawn() -> None:
    row = next(row for row in PLAN if row["strategy"] == "task")
    chart = made(scaling([row]))
    assert len(values(chart)) == 1 and "ring" not in chart.note


def test_many_workers_are_on_a_logarithmic_axis() -> None:
    rows = [{**PLAN[0], "workers": workers} for workers in (1, 5, 1000)]
    axis = made(scaling(rows)).spec["encoding"]["x"]
    assert axis["scale"]["type"] == "log"
    assert axis["axis"]["values"][0] == 1 and axis["axis"]["values"][-1] <= 1000
    few = [{**PLAN[0], "workers": workers} for workers in (1, 2)]
    assert made(scaling(few)).spec["encoding"]["x"]["axis"]["values"] == [1, 2]


def test_the_phases_of_a_bar_are_all_of_its_workers_time() -> None:
    chart = made(planned_phases(PLAN))
    by_name: Counter[str] = Counter()
    for value in values(chart, 0):
        by_name[value["name"]] += value["value"]
    ends = {value["name"]: value["value"] for value in values(chart, 1)}
    assert by_name == pytest.approx(ends)
    first = next(row for row in PLAN if row["rank"] == 1)
    assert ends[next(iter(ends))] == pytest.approx(first["workers"] * first["t_p50"], rel=0.02)


def test_what_ifs_that_would_leave_no_room_are_left_out_and_named() -> None:
    slow = {**PLAN[0], "rank": 99, "strategy": "pipeline", "executed": False, "t_p50": 1e6}
    slow["idle_s"] = TOO_LONG * 1e7
    chart = made(planned_phases([*PLAN, slow]))
    assert "Left out: pipeline (what-if)" in chart.note or "pipeline" in chart.alt
    alone = made(planned_phases([slow]))
    assert "Left out" not in alone.note and len(values(alone, 1)) == 1


def test_planned_and_taken_stand_side_by_side() -> None:
    outcome = outcome_of(PLAN)
    pairs = {(v["phase"], v["kind"]): v["value"] for v in values(made(compared_phases(outcome)))}
    assert pairs["compute", "took"] == outcome["actual_compute_s"]
    assert pairs["compute", "planned"] == outcome["compute_s"] + outcome["communication_s"]


def test_learning_curves_leave_out_what_is_no_number() -> None:
    rows = [
        {"candidate_id": 7, "epoch": 0, "training_loss": 2.0, "objective": math.nan},
        {"candidate_id": 7, "epoch": 1, "training_loss": 1.0, "objective": 0.5},
        {"candidate_id": 8, "epoch": 0, "training_loss": 1.0, "objective": math.inf},
    ]
    chart = made(learning(curves_of(rows, "rmse"), {7: "7", 8: "8"}, 2))
    assert [(v["name"], v["epoch"], v["value"]) for v in values(chart, 0)] == [("7", 2, 0.5)]
    assert learning(curves_of([], "rmse"), {}, 0) is None


def test_without_validation_the_curves_are_of_the_training_loss() -> None:
    rows = [{"candidate_id": 7, "epoch": 0, "training_loss": 2.0, "objective": None}]
    assert made(learning(curves_of(rows, None), {7: "7"}, 1)).title == "Training loss by epoch"


def test_more_candidates_than_colours_are_a_band() -> None:
    some = facts(candidates=40)
    chart = made(learning(curves_of(some.epochs, "accuracy"), some.leaders, 40))
    band = values(chart, 0)[-1]
    assert band["low"] < band["middle"] < band["high"]
    assert len({value["name"] for value in values(chart, -1)}) == 8


def test_the_timeline_has_a_bar_for_each_hop() -> None:
    hops = hops_of(candidates=3, epochs=2, workers=2)
    bars = values(made(timeline(hops, {100: "100", 101: "101"})))
    assert len(bars) == len(hops)
    assert {bar["name"] for bar in bars} == {"100", "101", OTHERS}
    assert sum(bar.get("pale", 0) for bar in bars) == 6
    assert sum(b["to"] - b["from"] for b in bars) == pytest.approx(sum(h["total_s"] for h in hops))


def test_hops_too_short_to_be_seen_are_drawn_together() -> None:
    hops = hops_of(candidates=1000, epochs=5, workers=8)
    chart = made(timeline(hops, {}))
    bars = values(chart)
    assert len(hops) > 20_000 and len(bars) <= 1.2 * BARS
    assert "drawn together" in chart.note
    assert any(bar["what"].endswith("hops of 1 candidates") for bar in bars)


def test_the_time_of_workers_is_counted_as_plans_count_it() -> None:
    rows = spent(hops_of(candidates=3, epochs=2, workers=2))
    assert [row["hops"] for row in rows] == [20, 10]
    total = {sum(row[f"{p}_s"] for p in ("compute", "read", "hop", "validation", "idle"))
             for row in rows}  # fmt: skip
    assert max(total) == pytest.approx(min(total))
    assert rows[0]["compute_s"] == pytest.approx(2 * 2 * 4 * 0.8)


@pytest.mark.parametrize("longest", [0.0, 3e-5, 0.02, 1.0, 7.5, 59.0, 500.0, 9000.0, 4e6, 1e9])
def test_ticks_of_time_are_few_and_within(longest: float) -> None:
    axis = hop_chart.linear("time", longest)["axis"]
    assert axis["values"][0] == 0 and axis["values"][-1] <= longest * 1.0001
    assert 1 <= len(axis["values"]) <= 10 and "indexof" in axis["labelExpr"]


@pytest.mark.parametrize(
    ("low", "high"), [(0.001, 1.0), (2.0, 300.0), (0.5, 1e6), (86400.0, 9e9), (3.0, 3.1)]
)
def test_logarithmic_ticks_of_time_are_few_and_within(low: float, high: float) -> None:
    axis = hop_chart.logarithmic("time", low, high)
    bottom, top = axis["scale"]["domain"]
    assert 1 <= len(axis["axis"]["values"]) <= 9
    assert all(bottom <= value <= top for value in axis["axis"]["values"])


def test_the_metrics_of_versions_are_lines_once_there_are_two() -> None:
    rows = [
        {"version": v, "metric": m, "dataset": d, "value": v / 10}
        for v in (1, 2, 5)
        for m, d in (("accuracy", ""), ("accuracy", "new"))
    ]
    rows += [{"version": 5, "metric": "rmse", "dataset": "", "value": 2.0}]
    rows += [{"version": 1, "metric": "nan", "dataset": "", "value": math.nan}] * 2
    chart = made(versions_chart(rows, 5))
    points = values(chart)
    assert Counter(point["name"] for point in points) == {"accuracy": 3, "accuracy on new": 3}
    assert {point["version"] for point in points if "here" in point} == {5}
    assert "accuracy on new: 0.1 at version 1, 0.5 at version 5" in chart.alt
    assert versions_chart(rows[:1], 1) is None


def test_bytes_of_tensors_are_in_pairs() -> None:
    tensors: list[dict[str, Any]] = [
        {"path": f"t{k}", "byte_count": 1000 * k, "stored_bytes": 10 * k or None} for k in range(40)
    ]
    pairs = {(v["name"], v["kind"]): v["value"] for v in values(made(tensors_chart(tensors)))}
    assert pairs["t39", "size"] == 39_000 and pairs["t39", "stored"] == 390
    rest = sum(tensor["byte_count"] for tensor in tensors) - sum(range(25, 40)) * 1000
    assert pairs["25 more", "size"] == rest


def test_bars_of_models_say_what_became_of_their_bytes() -> None:
    parts = {"stored_bytes": 10, "shared_bytes": 85, "encoded_away_bytes": 5}
    row = {"model": "m", "version": 1, "byte_count": 100} | parts
    small = row | {"version": 2, "shared_bytes": None, "encoded_away_bytes": -3, "byte_count": 7}
    chart = made(models_chart([row, small]))
    found = {(v["name"], v["part"]): v["value"] for v in values(chart, 0)}
    assert found == {
        ("m@1", "stored"): 10,
        ("m@1", "shared with other models"): 85,
        ("m@1", "saved by encoding"): 5,
        ("m@2", "stored"): 10,
    }
    assert [(v["value"], v["text"]) for v in values(chart, 1)] == [(100, "100 B"), (10, "7 B")]
    assert "m@1: 10 B stored, 85 B shared with other models" in chart.alt
