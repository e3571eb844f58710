"""A candidate that cannot train is refused before anything is written."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.data.decoding import Target
from mmdb.errors import (
    FactoryFailed,
    FunctionFailed,
    InvalidHyperparameter,
    InvalidOption,
    MmdbError,
    OutputMismatch,
)
from mmdb.train.drive.candidate_check import CandidateCheck
from mmdb.train.values.jobs import job_of
from mmdb.train.values.spec import CandidateSpec, HopSpec, HopStep

HERE = "tests.unit.train.test_check"
FACTORIES = {
    "mlp": "mmdb.graph.factories:mlp",
    "reader": f"{HERE}:reader",
    "swapped": f"{HERE}:swapped",
    "forgets": f"{HERE}:forgets",
}
SHAPES = {"image": (1, 4, 4), "text": (7,)}
TARGETS = (
    Target(name="digit", task="classification", size=3),
    Target(name="price", task="regression", size=1),
)
built: list[int] = []


class Reader(nn.Module):
    """An image and a text in, a class and a number out."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], outputs: dict[str, int]) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 5)
        self.heads = nn.ModuleDict(
            {name: nn.Linear(5 + shapes["image"][-1], size) for name, size in outputs.items()}
        )

    def forward(self, image: Tensor, text: Tensor) -> dict[str, Tensor]:
        both = torch.cat([image[:, 0, 0], self.words(text).mean(1)], 1)
        return {name: head(both) for name, head in self.heads.items()}


def reader(shapes: Any, outputs: Any, width: int = 1) -> nn.Module:
    built.append(width)
    return Reader(shapes, outputs)


def swapped(shapes: Any, outputs: Any) -> nn.Module:
    return Reader(shapes, dict(zip(outputs, reversed(outputs.values()), strict=True)))


def forgets(shapes: Any, outputs: Any) -> nn.Module:
    return Reader(shapes, {"digit": 3})


def loss(output: Tensor, y: Tensor) -> Tensor:
    raise AttributeError("cubes")


def check(architecture: str, **changes: Any) -> CandidateCheck:
    parts: dict[str, Any] = {
        "architecture": {"factory": architecture, "arguments": {}},
        "input_shape": SHAPES,
        "input_dtype": {"image": "float32", "text": "int64"},
        "targets": TARGETS,
        "factories": FACTORIES,
        "functions": {"loss": {"cubes": f"{HERE}:loss"}},
        "train_rows": None,
        "options": {},
    }
    return CandidateCheck(**{**parts, **changes})


def test_a_model_of_several_inputs_and_labels_passes_and_is_built_once() -> None:
    built.clear()
    checked = check("reader")
    for lr in (0.1, 0.01):
        checked({"lr": lr})
    checked({"architecture.width": 2})
    assert built == [1, 2]


HUBER = {"name": "huber", "delta": -1}
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], type[MmdbError], str]] = [
    ("swapped", {}, {}, OutputMismatch, "digit"),
    ("forgets", {}, {}, OutputMismatch, "price"),
    ("mlp", {}, {}, FactoryFailed, "one input and one label"),
    ("reader", {"architecture.depth": 2}, {}, FactoryFailed, "depth"),
    ("reader", {"loss": {"price": "cubes"}}, {}, FunctionFailed, "cubes"),
    ("reader", {"loss": {"price": HUBER}}, {}, InvalidHyperparameter, "huber"),
    ("reader", {"class_weights": {"digit": "balanced"}}, {}, InvalidHyperparameter, "counts"),
    ("reader", {"optimizer": {"name": "adam", "betas": [2, 2]}}, {}, InvalidHyperparameter, "adam"),
    ("reader", {}, {"options": {"metric": "accuracy"}}, InvalidOption, "accuracy"),
    ("reader", {}, {"input_dtype": "float32"}, FactoryFailed, "text"),
    ("reader", {}, {"input_shape": {"image": (1, 4, 4)}}, FactoryFailed, "text"),
]


@pytest.mark.parametrize(("name", "raw", "changes", "kind", "named"), REFUSED)
def test_what_cannot_train_is_refused(
    name: str, raw: dict[str, Any], changes: dict[str, Any], kind: type[MmdbError], named: str
) -> None:
    with pytest.raises(kind, match=named):
        check(name, **changes)(raw)


def test_a_candidate_of_several_inputs_and_labels_travels_as_json() -> None:
    candidate = CandidateSpec(
        candidate_id=1,
        architecture={"factory": "reader", "arguments": {}},
        config={"lr": 0.1},
        factories=FACTORIES,
        input_shape=SHAPES,
        targets=TARGETS,
        seed=3,
        functions={"loss": {"cubes": f"{HERE}:loss"}},
        class_counts={"digit": [1, 2, 3]},
        train_rows=6,
        options={"metric": "digit.f1"},
    )
    step = HopStep(
        part_id=1, partition="00", epoch=0, ordinal=0, seed=1, validates=False, ends_epoch=True
    )
    spec = HopSpec(candidate=candidate, step=step, state_in=None, environment=None, base=None)
    assert job_of("HopSpec", json.loads(json.dumps(asdict(spec)))) == spec
    assert candidate.outputs == {"digit": 3, "price": 1}


def row(**more: Any) -> dict[str, Any]:
    return {
        "candidate_id": 1,
        "architecture": "{}",
        "config": "{}",
        "input_shape": [4],
        "targets": '[{"name": "y", "task": "classification", "size": 2}]',
        "seed": 1,
        "options": '{"metric": "f1", "order": "free"}',
        **more,
    }


def test_a_candidate_of_a_plain_dataset_has_one_target() -> None:
    found = CandidateSpec.from_row(row(), {})
    assert found.targets == (Target(name="y", task="classification", size=2),)
    assert (found.input_shape, found.outputs) == ((4,), 2)
    assert found.options == {"metric": "f1"}


def test_a_candidate_has_the_inputs_and_targets_of_its_dataset() -> None:
    targets = '[{"name": "digit", "task": "classification", "size": 3, "classes": [1, 2, 3]}]'
    inputs = '[{"name": "image", "shape": [1, 4, 4]}, {"name": "text", "shape": [7]}]'
    found = CandidateSpec.from_row(row(targets=targets, inputs=inputs, input_shape=[]), {})
    assert found.targets == TARGETS[:1]
    assert found.input_shape == SHAPES
    one = CandidateSpec.from_row(row(inputs='[{"name": "", "shape": [7]}]', input_shape=[7]), {})
    assert one.input_shape == (7,)
