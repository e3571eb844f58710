from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_graph import BUFFER, CONSTANT, OpGraph
from mmdb.graph.ops.tensor_contents import numbers_of


@pytest.mark.parametrize(
    ("values", "number"),
    [
        (torch.zeros(2, 3), 0.0),
        (torch.ones(4, dtype=torch.bool), True),
        (torch.tensor(7), 7),
        (torch.full((2,), 0.5, dtype=torch.bfloat16), 0.5),
    ],
)
def test_one_number_throughout_is_told(values: Tensor, number: object) -> None:
    assert numbers_of(values) == {"uniform": number}


@pytest.mark.parametrize(
    "values",
    [
        torch.arange(6.0).reshape(2, 3),
        torch.eye(3, dtype=torch.bool),
        torch.full((3,), -torch.inf),
        torch.arange(4).to(torch.bfloat16),
        torch.tensor([1 + 2j, 3]),
    ],
)
def test_other_numbers_have_a_digest(values: Tensor) -> None:
    found = numbers_of(values)
    assert list(found) == ["digest"] and found == numbers_of(values.clone())
    assert found == numbers_of(values.t().contiguous().t() if values.ndim == 2 else values)
    changed = values.clone()
    changed.view(-1)[0] = 1
    changed.view(-1)[-1] = 0
    assert numbers_of(changed) != found


@pytest.mark.parametrize(
    "values", [None, torch.empty(0), torch.empty(3, device="meta"), torch.zeros(1).expand(1 << 25)]
)
def test_what_is_not_known_or_too_large_has_none(values: Tensor | None) -> None:
    assert numbers_of(values) == {}


class Tables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("saved", torch.arange(4.0))
        self.register_buffer("unsaved", torch.arange(4.0), persistent=False)
        self.attribute = torch.arange(4.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x) + self.saved + self.unsaved
        x = x + self.attribute + torch.arange(4.0) + torch.ones(4) + torch.randn(4)
        y: Tensor = torch.tensor(3.0) * (x / torch.tensor(2.0) * torch.full((), 4.0).sqrt())
        return y


def of(flow: OpGraph, op: str) -> dict[str, dict[str, Any]]:
    return {one.path: dict(one.arguments) for one in flow.operations if one.op == op}


def test_constants_and_unsaved_buffers_have_numbers() -> None:
    flow = capture(Tables(), [torch.zeros(2, 4)])
    assert not {"uniform", "digest"} & set(of(flow, BUFFER)["saved"])
    digest = numbers_of(torch.arange(4.0))["digest"]
    assert of(flow, BUFFER)["unsaved"]["digest"] == digest
    constants = [one.arguments for one in flow.operations if one.op == CONSTANT]
    assert [one.get("digest") for one in constants] == [digest, digest, None, None]
    assert [one.get("uniform") for one in constants] == [None, None, 1.0, None]


def test_a_factor_without_axes_is_a_number() -> None:
    flow = capture(Tables(), [torch.zeros(2, 4)])
    products = [one for one in flow.operations if one.op in ("mul", "div")]
    assert [(one.op, one.arguments["other"]) for one in products] == [
        ("div", 2.0), ("mul", 2.0), ("mul", 3.0),
    ]  # fmt: skip
    assert all(len(one.reads) == 1 for one in products)
