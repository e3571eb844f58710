"""What is measured: that it is measured, leaves nothing behind and can be ended. Not how fast."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
import torch

from mmdb.errors import Cancelled, InvalidOption
from mmdb.plan.profile.measurements import KINDS
from mmdb.plan.profile.measurers import COMPUTE, Order, order_of, perform

BUDGET_S = 0.6
#: Of what takes longer than others: two networks are trained.
BUDGETS_S = {"references": 3.0}
FOUND = {
    "products": {"product", "product_backward"},
    "thin_products": {"product_thin", "product_thin_backward"},
    "convolutions": {"convolution", "convolution_backward"},
    "depthwise": {"depthwise", "depthwise_backward"},
    "operations": {"operation"},
    "references": {"reference"},
    "memory": {"elementwise", "copy"},
    "dispatch": {"dispatch", "dispatch_backward"},
    "updates": {"update_sgd", "update_adam", "update_tensors"},
    "states": {"state_hash", "state_encode", "state_decode", "merge"},
    "decoding": {"decode", "decode_pixels"},
}


@pytest.mark.parametrize("what", COMPUTE)
def test_it_is_measured_at_several_sizes(what: str) -> None:
    rows = perform(Order(what=what, budget_s=BUDGETS_S.get(what, BUDGET_S), seed=3))
    sizes = Counter(row.kind for row in rows)
    assert sizes.keys() == FOUND[what] and max(sizes.values()) >= 2
    for row in rows:
        assert row.value > 0 and row.size >= 0 and row.samples >= 5 and not row.assumed
        assert row.unit == "s" and row.deviation >= 0 and row.kind in KINDS


@pytest.mark.parametrize("what", ["products", "states", "updates"])
def test_torch_is_left_as_it_was(what: str) -> None:
    before = torch.get_rng_state(), torch.get_num_threads()
    perform(Order(what=what, budget_s=0.2))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("what", COMPUTE)
def test_it_ends_when_it_is_told_to(what: str) -> None:
    looks = count()
    with pytest.raises(Cancelled):
        perform(Order(what=what, budget_s=30.0), stopped=lambda: next(looks) > 10)


def test_busy_work_goes_on_for_its_time() -> None:
    rows = perform(Order(what="busy", budget_s=0.6, count=3))
    assert {row.kind: row.size for row in rows} == {
        "busy_product": 3.0,
        "busy_copy": 3.0,
        "busy_step": 3.0,
    }
    taken_s = {row.kind: row.samples * row.value for row in rows}
    assert taken_s["busy_step"] > 2 * taken_s["busy_product"]


def test_busy_work_that_waits_to_begin_can_be_ended() -> None:
    with pytest.raises(Cancelled):
        perform(Order(what="busy", budget_s=1.0, begin_at=1e11), stopped=lambda: True)


@pytest.mark.parametrize(
    "raw",
    [
        {"what": "nothing", "budget_s": 1.0},
        {"what": "products", "budget_s": 0.0},
        {"what": "products", "budget_s": 1e9},
        {"what": "products", "budget_s": "1"},
        {"what": "products", "budget_s": 1.0, "seed": 0.5},
        {"what": "products", "budget_s": 1.0, "group": {}},
        {"what": "group", "budget_s": 1.0},
        {"what": "busy", "budget_s": 1.0, "count": 0},
        {"what": "products", "budget_s": 1.0, "speed": 1},
        {"budget_s": 1.0},
    ],
)
def test_an_impossible_order_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(InvalidOption, match="nothing to be measured"):
        order_of(raw)


def test_an_order_survives_json() -> None:
    order = Order(what="busy", budget_s=1.0, seed=4, count=2, begin_at=5.0)
    assert order_of(order.to_json()) == order
