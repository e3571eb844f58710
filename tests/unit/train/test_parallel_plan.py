"""What each rank of a group learns from in each step, and gradients on their way to a sum."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mmdb.train.compute.optimizer import steps
from mmdb.train.group.collectives import in_rank_order
from mmdb.train.group.group_pass import Gradients, group_plan, portion_sizes

ROWS = st.lists(st.integers(1, 60), min_size=2, max_size=5)


@given(rows=ROWS, batch_size=st.integers(1, 80))
def test_every_row_goes_through_once_and_none_alone(rows: list[int], batch_size: int) -> None:
    batches = portion_sizes(rows, batch_size)
    assert [sum(sizes) for sizes in zip(*batches, strict=True)] == rows
    assert all(any(sizes) for sizes in batches)
    for rank, count in enumerate(rows):
        assert count == 1 or all(sizes[rank] != 1 for sizes in batches)
    assert len(batches) <= -(-sum(rows) // batch_size)


@given(rows=ROWS, batches=st.integers(1, 6))
def test_large_batches_are_as_even_as_can_be(rows: list[int], batches: int) -> None:
    rows = [2 * batches + count for count in rows]
    found = portion_sizes(rows, -(-sum(rows) // batches))
    for sizes in zip(*found, strict=True):
        assert max(sizes) - min(sizes) <= 1
    assert max(map(sum, found)) - min(map(sum, found)) <= len(rows)


@given(rows=ROWS, batch_size=st.integers(1, 80), accumulate=st.integers(1, 4))
def test_the_shares_of_a_step_are_its_rows_share(
    rows: list[int], batch_size: int, accumulate: int
) -> None:
    orders = [torch.randperm(count) for count in rows]
    plans = [
        group_plan(rows, rank, batch_size, accumulate)(order) for rank, order in enumerate(orders)
    ]
    for order, plan in zip(orders, plans, strict=True):
        taken = torch.cat([portion.index for step in plan for portion in step])
        assert torch.equal(taken, order)
    for step in zip(*plans, strict=True):
        portions = [portion for part in step for portion in part]
        total = sum(len(portion.index) for portion in portions)
        assert [p.share for p in portions] == [len(p.index) / total for p in portions]


@given(count=st.integers(1, 60), batch_size=st.integers(1, 80), accumulate=st.integers(1, 4))
def test_a_group_of_one_has_the_plan_of_an_ordinary_hop(
    count: int, batch_size: int, accumulate: int
) -> None:
    order = torch.randperm(count)
    plan = group_plan([count], 0, batch_size, accumulate)(order)
    plain = steps(order, batch_size, accumulate)
    assert [[(p.index.tolist(), p.share) for p in step] for step in plan] == [
        [(p.index.tolist(), p.share) for p in step] for step in plain
    ]


class Several(nn.Module):
    """Parameters of several types, one of which gets no gradient and one of which never can."""

    def __init__(self) -> None:
        super().__init__()
        self.single = nn.Parameter(torch.ones(2, 3).T)
        self.wide = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.narrow = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
        self.table = nn.Embedding(4, 2, sparse=True)
        self.unused = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)


def test_gradients_are_summed_in_a_type_that_holds_them() -> None:
    module = Several()
    gradients = Gradients(module)
    (module.single.sum() * 3 + module.wide.sum() / 3 + module.narrow.sum()).backward()
    module.table(torch.tensor([1, 1])).sum().backward()
    packed = [flat.clone() for flat in gradients.pack()]
    assert [flat.dtype for flat in packed] == [torch.float32, torch.float64]
    gradients.unpack([in_rank_order([flat, flat]) for flat in packed])
    assert module.single.grad is not None and module.single.grad.shape == (3, 2)
    assert module.single.grad.unique().tolist() == [6.0]
    assert module.wide.grad is not None and module.wide.grad.tolist() == [2 * (1 / 3)] * 2
    assert module.narrow.grad is not None and module.narrow.grad.dtype == torch.bfloat16
    assert module.table.weight.grad is not None
    assert module.table.weight.grad.tolist() == [[0, 0], [4, 4], [0, 0], [0, 0]]
    assert module.unused.grad is None and module.frozen.grad is None


def test_a_gradient_that_one_rank_has_reaches_all() -> None:
    with_one, without = nn.Linear(2, 1), nn.Linear(2, 1)
    with_one(torch.ones(1, 2)).sum().backward()
    packed = [Gradients(module).pack()[0] for module in (with_one, without)]
    Gradients(without).unpack([in_rank_order(packed)])
    assert without.weight.grad is not None and without.weight.grad.tolist() == [[1.0, 1.0]]


def test_a_module_without_parameters_has_nothing_to_sum() -> None:
    gradients = Gradients(nn.ReLU())
    assert gradients.pack() == []
    gradients.unpack([])


@pytest.mark.parametrize("values", [[1e8, 1.0, -1e8], [1.0, 1e8, -1e8]])
def test_ranks_are_summed_in_order(values: list[float]) -> None:
    found = in_rank_order([torch.tensor([value]) for value in values])
    assert found.item() == 0.0
