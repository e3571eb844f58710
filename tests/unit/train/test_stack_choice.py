"""Stacks are chosen by what a few steps take, and not where candidates cannot stack."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mmdb.data.decoding import Target, Task
from mmdb.graph.factories import SHIPPED
from mmdb.train.drive import stack_choice
from mmdb.train.drive.stack_choice import SIZE, TimedSteps, choose_stack
from mmdb.train.values.spec import CandidateSpec

TASKS = {
    "classification": Target(name="y", task="classification", size=3),
    "regression": Target(name="y", task="regression", size=1),
    "multilabel": Target(name="y", task="multilabel", size=2),
}


def _candidates(
    count: int, factory: str = "mlp", task: str = "classification", **config: Any
) -> list[CandidateSpec]:
    return [
        CandidateSpec(
            candidate_id=k,
            architecture={"factory": factory, "arguments": {}},
            config={"lr": 0.01 / (k + 1), "batch_size": 8, "optimizer": "adam", **config},
            factories=dict(SHIPPED),
            input_shape=(4,) if factory not in ("cnn", "resnet") else (1, 8, 8),
            targets=(TASKS[task],),
            seed=k,
        )
        for k in range(count)
    ]


def _timed(together: float) -> TimedSteps:
    return TimedSteps(
        config={}, rows=8, steps=1, alone_s=1.0, stacked_s=together, state_bytes=1, environment=""
    )


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("factory", ["mlp", "cnn", "tabular", "transformer"])
def test_both_ways_are_measured(factory: str, task: str) -> None:
    found = stack_choice.measured(_candidates(1, factory, task)[0], 4)
    assert found is not None and found.alone_s > 0 and found.stacked_s > 0
    assert found.rows == 8 and found.steps > 0 and found.state_bytes > 0


@pytest.mark.parametrize("pools", [True, False], ids=["of texts", "of tokens"])
def test_texts_are_measured(pools: bool) -> None:
    layers: list[dict[str, Any]] = [
        {"name": "e", "op": "Embedding", "args": {"num_embeddings": 5, "embedding_dim": 4}},
        *([{"name": "m", "op": "mean", "args": {"dim": [1]}}] if pools else []),
        {"name": "o", "op": "Linear", "args": {"out_features": "$outputs"}},
    ]
    task: Task = "classification" if pools else "next_token"
    target = Target(name="y", task=task, size=3)
    (candidate,) = _candidates(1)
    candidate = replace(candidate, architecture={"layers": layers}, targets=(target,))
    found = stack_choice.measured(candidate, 4, "int64")
    assert found is not None and found.alone_s > 0 and found.stacked_s > 0


@pytest.mark.parametrize(
    "candidates",
    [
        _candidates(40, "linear", accumulate=3),
        _candidates(40, optimizer="rmsprop"),
        _candidates(40, accumulate=2),
        _candidates(1),
    ],
    ids=["linear", "rmsprop", "accumulate", "one"],
)
def test_what_cannot_stack_trains_one_by_one(candidates: list[CandidateSpec]) -> None:
    assert choose_stack(candidates).size == 1


@pytest.mark.parametrize(
    ("together", "count", "size"), [(0.3, 64, SIZE), (0.9, 64, 1), (0.3, 6, 3), (2.0, 64, 1)]
)
def test_the_gain_decides(
    monkeypatch: pytest.MonkeyPatch, together: float, count: int, size: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(stack_choice, "measured", lambda *_: _timed(together))
    found = choose_stack(_candidates(count))
    assert found.size == size and f"{together:.2f} of the time" in found.reason


def test_shapes_count_by_their_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = _candidates(4, batch_size=4), _candidates(60)
    monkeypatch.setattr(
        stack_choice,
        "measured",
        lambda candidate, *_: _timed(4.0 if candidate.config["batch_size"] == 4 else 0.5),
    )
    assert choose_stack([*few, *many]).size == SIZE
    assert choose_stack([*few, *many[:4]]).size == 1


def test_too_many_shapes_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_choice, "_LIMIT_S", -1.0)
    assert "too many" in choose_stack(_candidates(40)).reason
