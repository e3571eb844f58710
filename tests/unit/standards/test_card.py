"""Model cards, from rows that are written here."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import yaml  # type: ignore[import-untyped]

from mmdb.standards.model_card import CardFacts, card

DAY = datetime(2026, 1, 1, tzinfo=UTC)
MODEL: dict[str, Any] = {
    "model": "digits",
    "version": 3,
    "dataset": "points",
    "run": None,
    "candidate_id": None,
    "epoch": None,
    "architecture": None,
    "arguments": None,
    "tensors": 4,
    "byte_count": 1_024,
    "stored_bytes": 96,
    "created_at": DAY,
    "approach": "update",
    "parent": "digits@2",
    "nodes": None,
    "parameters": None,
    "dropped_at": None,
}
DATASET: dict[str, Any] = {
    "query": "SELECT '```' AS a -- ````\nFROM t",
    "label": "y",
    "task": "regression",
    "row_count": 1_000,
    "validation": 0.25,
    "seed": 0,
    "classes": None,
    "created_at": DAY,
}
SOURCES: list[dict[str, Any]] = [
    {"schema_name": "shop", "table_name": "t", "column_name": "a", "output_name": "a"},
    {"schema_name": None, "table_name": "", "column_name": None, "output_name": "b"},
]
TRANSFORM: dict[str, Any] = {
    "column_name": "a|b",
    "role": "categorical",
    "transform": "one_hot",
    "meaning": 'a 0/1 number for each of ["<i>", "x"]',
    "missing": 0,
}
FACTS = CardFacts(
    model=MODEL,
    aliases=["best", "champion"],
    metrics=[
        {"metric": "rmse", "dataset": "", "value": float("nan")},
        {"metric": "rmse", "dataset": "test", "value": 0.123456789},
    ],
    tags=[{"key": "stage", "value": 'a "b": [c]'}],
    notes=[{"note": "Two\nlines: <script>", "author": "ann", "created_at": DAY}],
    dataset=DATASET,
    transforms=[TRANSFORM, TRANSFORM | {"column_name": "y", "meaning": None, "missing": None}],
    sources=[s | {"via": None, "warm_parent": "old@1", "coverage": 0.5} for s in SOURCES],
    run=None,
    candidates=[],
    children=[{"model": "next", "version": 1, "approach": "snapshot"}],
)


def test_the_head_is_yaml_whatever_is_in_it() -> None:
    head = yaml.safe_load(card(FACTS).split("---\n")[1])
    assert head["tags"] == ["mmdb", "update", 'stage:a "b": [c]']
    own, other = head["model-index"][0]["results"]
    assert own["task"] == {"type": "tabular-regression"}
    assert (own["dataset"]["name"], other["dataset"]["name"]) == ("points", "test")
    (nan,), (number,) = ([m["value"] for m in one["metrics"]] for one in (own, other))
    assert nan != nan and number == 0.123457


def test_characters_and_numbers_are_those_of_yaml() -> None:
    tag = {"key": "k", "value": "a\x7fb\x85c\u2028d\ufeff"}
    small = {"metric": "mae", "dataset": "", "value": 1e-5}
    head = yaml.safe_load(card(replace(FACTS, tags=[tag], metrics=[small])).split("---\n")[1])
    assert head["tags"][-1] == f"k:{tag['value']}"
    assert head["model-index"][0]["results"][0]["metrics"] == [{"type": "mae", "value": 1e-5}]


def test_nothing_in_it_becomes_markup() -> None:
    content = card(FACTS)
    how = r'a 0/1 number for each of \["\<i\>", "x"\]'
    assert rf"| a\|b | categorical | one\_hot | {how} | 0 |" in content
    assert r"| y | categorical | one\_hot |  |  |" in content
    assert "`````sql\nSELECT '```' AS a -- ````\nFROM t\n`````" in content
    assert r"- Two lines: \<script\> (2026-01-01T00:00:00.000000Z, ann)" in content
    for note, line in (("---", r"- \---"), ("1. a", r"- 1\. a"), ("2) a", r"- 2\) a"),
                       ("+ a", r"- \+ a"), ("1.5 is best", r"- 1\.5 is best")):  # fmt: skip
        assert f"\n{line} (" in card(
            replace(FACTS, notes=[{"note": note, "author": "", "created_at": DAY}])
        )


def test_what_is_known_is_said_and_the_rest_left_out() -> None:
    content = card(FACTS)
    lines = content.splitlines()
    assert "| aliases | best, champion |" in lines and "| made from | digits@2 |" in lines
    assert "| began with tensors of | old@1 |" in lines
    assert "| share of parameters from there | 50% |" in lines
    assert "| models made from it | next@1 |" in lines
    assert "| shop.t | a | a |" in lines and "| not resolved | not resolved | b |" in lines
    assert (
        "| rmse | the validation rows | .nan |" in lines and "| rmse | test | 0.123457 |" in lines
    )
    assert "None" not in content and "## Training\n" not in content


def test_of_a_mean_all_candidates_are_listed() -> None:
    run = {"strategy": "mop", "metric": "rmse", "epochs": 3, "candidates": 12}
    members = [
        {"candidate": 9, "config": '{"lr": 0.1, "name": "adam"}', "epoch": 2},
        {"candidate": 0, "config": '{"lr": 0.5}', "epoch": 0},
    ]
    model = MODEL | {"run": "r", "epoch": 2}
    lines = card(replace(FACTS, model=model, run=run, candidates=members)).splitlines()
    assert "| the mean of candidates | 10, 1 of 12 |" in lines
    assert "| at their epochs | 3, 1 |" in lines
    assert "| name | candidate 10 | candidate 1 |" in lines
    assert "| lr | 0.1 | 0.5 |" in lines and "| name | adam |  |" in lines
    assert not any("epoch of this model" in line for line in lines)
    one = card(replace(FACTS, model=model, run=run, candidates=members[:1])).splitlines()
    assert {"| candidate | 10 of 12 |", "| epoch of this model | 3 |", "| lr | 0.1 |"} <= {*one}


def test_a_dropped_model_has_a_card_without_a_use() -> None:
    content = card(replace(FACTS, model=MODEL | {"dropped_at": DAY}, dataset=None, sources=[]))
    assert "**Dropped** at 2026-01-01" in content and "## Use" not in content
    assert "what it was trained on is not known here" in content
